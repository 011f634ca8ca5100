from __future__ import annotations

from django.contrib.auth.management import create_permissions
from django.db import migrations

from hermes.dashboard import roles


def make(apps, schema_editor):
    # Django makes permissions after all migrations; these groups need theirs now.
    for config in apps.get_app_configs():
        config.models_module = True
        create_permissions(config, apps=apps, verbosity=0)
        config.models_module = None
    roles.grant(apps)


def unmake(apps, schema_editor):
    apps.get_model("auth", "Group").objects.filter(name__in=list(roles.ROLES)).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0001_initial"),
        ("sessions_app", "0004_sweep_owner"),
        ("compression_app", "0002_operations"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

    operations = [migrations.RunPython(make, unmake)]
