"""Documents -> arrays, in numpy: packing, masking, sentences, targets."""
