"""A shop in Django: the payment of an order.

idem db upgrade && python manage.py migrate
idem run --no-api --app shop.payments:idem      # the daemons; bank and database: see idem.toml
python manage.py runserver

curl -X POST localhost:8000/orders/1/payment -H 'Idempotency-Key: p1'
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
