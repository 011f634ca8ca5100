"""The database itself refuses to change or delete what is in the history."""

from django.db import migrations

GUARD = """
CREATE FUNCTION hermes_history_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('hermes.history_moves', true), '') <> 'on' THEN
        RAISE EXCEPTION 'the history is append-only' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER hermes_history_is_append_only
BEFORE UPDATE OR DELETE ON sessions_app_history
FOR EACH STATEMENT EXECUTE FUNCTION hermes_history_is_append_only();
"""
NO_GUARD = """
DROP TRIGGER hermes_history_is_append_only ON sessions_app_history;
DROP FUNCTION hermes_history_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0006_delegated")]

    operations = [migrations.RunSQL(GUARD, NO_GUARD)]
