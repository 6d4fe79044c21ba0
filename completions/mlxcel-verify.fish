# fish completion for mlxcel-verify
# Written by `python -m mlxceld.generate` from the option table.

complete -c mlxcel-verify -s h -l help -d 'show this help message and exit'
complete -c mlxcel-verify -l streams -x -d 'streams at once, instead of one for every slot'
complete -c mlxcel-verify -l tokens -x -d 'tokens of each stream (default: 64); more of them where streams are over too soon, fewer where the window is small'
complete -c mlxcel-verify -l fill -x -a 'one all together none' -d 'windows to fill to their end: of one slot (the default), of all slots one after another or together, or of none; long prompts take their time'
complete -c mlxcel-verify -l timeout -x -d 'how long the server may be silent (default: 600)'
complete -c mlxcel-verify -l ca-file -r -F -d 'certificates to trust over https, in PEM, instead of those of the system'
complete -c mlxcel-verify -l api-key -x -d 'key to show; flags are visible in the list of processes'
complete -c mlxcel-verify -l api-key-file -r -F -d 'file with the key on its first line; - is stdin'
complete -c mlxcel-verify -l json -d 'print JSON instead of a page'
complete -c mlxcel-verify -l plot -r -F -d 'draw the timeline of the streams, as SVG'
complete -c mlxcel-verify -l quiet -d 'show no progress on a terminal'
complete -c mlxcel-verify -l version -d 'show the version'
