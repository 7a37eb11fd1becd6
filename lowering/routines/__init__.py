"""Operations that are more than a nest: products, factorisations, sorting, transforms, library calls."""
