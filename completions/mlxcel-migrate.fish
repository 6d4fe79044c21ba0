# fish completion for mlxcel-migrate
# Written by `python -m mlxceld.generate` from the option table.

complete -c mlxcel-migrate -s h -l help -d 'show this help message and exit'
complete -c mlxcel-migrate -l kind -x -a 'toml command script env systemd launchd quadlet compose ini' -d 'kind of the sources, instead of a guess'
complete -c mlxcel-migrate -l from -x -d 'whose words they are: mlxcel-server, llama-server or mlx_lm.server; mlxcel@VERSION is the older server of that name, mlxceld@VERSION this one'
complete -c mlxcel-migrate -l env-file -r -F -d 'variables that the service manager would set; may be repeated'
complete -c mlxcel-migrate -l name -x -d 'one set-up of several: the unit, service or section'
complete -c mlxcel-migrate -l keep -d 'keep today\'s meaning (the default)'
complete -c mlxcel-migrate -l adopt -d 'take the new meaning, and show it'
complete -c mlxcel-migrate -l as-of -x -d 'judge as this version would'
complete -c mlxcel-migrate -l model -r -F -d 'model to take sizes from'
complete -c mlxcel-migrate -l kv-bytes -x -d 'KV bytes of one token'
complete -c mlxcel-migrate -l to -r -F -d 'where the configuration goes; - is stdout'
complete -c mlxcel-migrate -l server -r -F -d 'mlxcel-server, as a service shall start it'
complete -c mlxcel-migrate -l write -d 'write; old files are kept as FILE.~1~'
complete -c mlxcel-migrate -l check -d 'only say what needs changes'
complete -c mlxcel-migrate -l report -x -a 'text json' -d 'form of the report'
complete -c mlxcel-migrate -l version -d 'show the version'
