"""fsspec's own suite of what every file system has to do."""

import fsspec
import pytest
from fsspec.tests import abstract


class Penstock(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, deployment):
        return fsspec.filesystem("penstock", deployment=str(deployment))

    @pytest.fixture
    def fs_path(self, top):
        return top


class TestCopy(abstract.AbstractCopyTests, Penstock):
    pass


class TestGet(abstract.AbstractGetTests, Penstock):
    pass


class TestOpen(abstract.AbstractOpenTests, Penstock):
    pass


class TestPipe(abstract.AbstractPipeTests, Penstock):
    pass


class TestPut(abstract.AbstractPutTests, Penstock):
    pass
