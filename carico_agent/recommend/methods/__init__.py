"""One method, one file; each registers itself when it is imported (`recommend.method.methods`)."""
