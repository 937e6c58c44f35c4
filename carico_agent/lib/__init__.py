"""What several products need, once: Kubernetes client, HTTP, TLS, limits, supervision, settings machinery, pages."""
