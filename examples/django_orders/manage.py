"""A shop in Django: the payment of an order.

export IDEM_DATABASE_URL=postgresql://…  BANK_TOKEN=main-token
idem db upgrade && python manage.py migrate
python manage.py shell -c "from shop.models import Order; Order.objects.create(total=4200)"
idem bank run --port 8600                       # the provider
idem run --no-api --app shop.payments:idem      # the daemons
python manage.py runserver

curl -X POST localhost:8000/orders/1/payment -H 'Idempotency-Key: p1'
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
