"""Which CPUs the kubelet's own CPU manager has given to containers: asked, watched, and said to everybody."""
