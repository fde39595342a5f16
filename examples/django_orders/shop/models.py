from django.db import models


class Order(models.Model):
    total = models.IntegerField(help_text="In cents.")
    state = models.TextField(default="open", db_default="open")
