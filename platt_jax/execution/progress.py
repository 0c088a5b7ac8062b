"""The progress bar of a fit."""


class _NoBar:
    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        return None

    def update(self, n):
        pass


def progress_bar(total: int, wanted: bool):
    """A bar of so many fits, or nothing to see if it is not wanted.

    Raises:
        ImportError: tqdm is missing.
    """
    if not wanted:
        return _NoBar()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'platt-jax[progress]'") from None
    return tqdm(total=total, unit="fit")
