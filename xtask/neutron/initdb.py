"""Makes Neutron's tables in SQLite from its models: the migrations know MySQL only."""
import sys

from neutron.common import config

config.register_common_config_options()
config.init(sys.argv[1:])

from neutron.db.migration.models import head  # noqa: E402,F401 (it imports every model)
from neutron_lib.db import api, model_base  # noqa: E402

model_base.BASEV2.metadata.create_all(api.get_context_manager().writer.get_engine())
