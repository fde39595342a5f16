from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from idem import RetryTransaction, StoreUnavailable

from .models import Order
from .payments import Charge, charge


@csrf_exempt  # for programs; a view for browsers keeps its CSRF token
@require_POST
def pay(request: HttpRequest, order_id: int) -> HttpResponse:
    call = charge.begin(key=request.headers.get("Idempotency-Key"), path=request.path, body=request.body)
    try:
        with transaction.atomic():
            if call.reserve(connection):  # Django's own connection, so one transaction with the model's rows
                order = get_object_or_404(Order.objects.select_for_update(), id=order_id)
                if order.state != "open":  # it is paid, or another request pays it now
                    transaction.set_rollback(True)  # the key is free again
                    return HttpResponse("There is nothing to pay.", status=409)
                order.state = "paying"
                order.save()
                call.submit(connection, Charge(order=order.id, amount=order.total))
        answer = call.answer(wait=8)  # after the commit
    except (RetryTransaction, StoreUnavailable):
        return HttpResponse("Send the same request again, with the same key.", status=503, headers={"Retry-After": "1"})
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))
