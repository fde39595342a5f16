"""The smallest settings that are a shop."""

import os

from psycopg.conninfo import conninfo_to_dict

_database = conninfo_to_dict(os.environ["IDEM_DATABASE_URL"])

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "for trying out only")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
INSTALLED_APPS = ["shop"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.get("dbname"),
        "USER": _database.get("user"),
        "PASSWORD": _database.get("password"),
        "HOST": _database.get("host"),
        "PORT": _database.get("port"),
        # Not True: the transaction would be committed after the view has returned, and so after its answer.
        "ATOMIC_REQUESTS": False,
    }
}
