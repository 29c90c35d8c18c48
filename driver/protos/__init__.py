"""Wire messages: ``*.proto`` and the Python made from them by ``python -m driver.protos``."""
