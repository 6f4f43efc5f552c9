"""What a data scientist asks first: which models there are, where, which versions answer, how much they are used."""
