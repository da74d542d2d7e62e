"""The order of attacks: what takes longest, and what it leaves behind, comes last."""

LAST = "test_attack_deadlock.py"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name == LAST)
