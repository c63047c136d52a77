"""Code of the user, as far as messages name its lines."""

from collectives.virtual.diagnosis.places import is_users


def test_packages_installed_for_one_user_are_none_of_the_users_code() -> None:
    assert is_users("/home/ann/train.py")
    assert not is_users("/home/ann/.local/lib/python3.11/site-packages/lightning/loops.py")
    assert not is_users("<string>")
