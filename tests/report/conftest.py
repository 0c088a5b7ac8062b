"""A report in a browser, for the tests of what its script does."""

import pytest

_SIZE = {"viewport": {"width": 1200, "height": 900}}


@pytest.fixture
def opened(browser, report):
    """A function that opens a file, or the report; no page may load anything or complain.

    Each module has its own fixture `report`: the path of a file.
    """
    contexts, complaints, asked, files = [], [], [], []

    def open_(path=report, **context):
        contexts.append(browser.new_context(**_SIZE | context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda one: asked.append(one.url))
        files.append(path.as_uri())
        page.goto(files[-1])
        page.locator("tbody tr[data-segment]").first.wait_for()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("data:", *files))] == []
