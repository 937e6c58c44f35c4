"""Where the parts are put together: the one place that knows all of them."""
