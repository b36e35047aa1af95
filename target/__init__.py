"""The reference inference server and the GPU sidecar."""
