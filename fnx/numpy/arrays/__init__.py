"""What an array is made from and read by: conversion, creation, dtypes, indexing plans."""
