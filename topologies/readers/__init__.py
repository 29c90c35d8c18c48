"""One reader per kind of source, each giving a ``Topology``; what they share is in ``assemble`` and ``text``."""
