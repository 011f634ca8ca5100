from __future__ import annotations

from django.contrib.auth.management import create_permissions
from django.db import migrations

from hermes.dashboard import roles


def add(apps, schema_editor):
    # Django makes permissions after all migrations; these groups need theirs now.
    for config in apps.get_app_configs():
        config.models_module = True
        create_permissions(config, apps=apps, verbosity=0)
        config.models_module = None
    roles.grant(apps, only=("processes_app",))


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0003_second_factor"),
        ("processes_app", "0002_operations"),
    ]

    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
