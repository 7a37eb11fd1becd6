"""Programs that can be called: loading, symbols, donation, the call itself."""
