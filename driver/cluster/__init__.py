"""The API server's side: claims, slices and events."""
