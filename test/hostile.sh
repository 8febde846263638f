#!/bin/sh
# hostile.sh COMMAND…: runs a test program on a machine that is set up in every unusual way: another language, umask, proxy, kubeconfig,
# configuration of git, keyring, and variables of Go and Gatehouse. 'make test-environment' uses it with go test -exec.
umask 077
export LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8 TZ=Asia/Kathmandu TERM=dumb NO_COLOR=1 CLICOLOR_FORCE=1 COLUMNS=20 PAGER=false BROWSER=false
export HTTP_PROXY=http://127.0.0.1:1 HTTPS_PROXY=http://127.0.0.1:1 ALL_PROXY=http://127.0.0.1:1 http_proxy=http://127.0.0.1:1 https_proxy=http://127.0.0.1:1
export XDG_DATA_HOME=/nonexistent XDG_RUNTIME_DIR=/nonexistent XDG_STATE_HOME=/nonexistent DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent
export KUBECONFIG=/nonexistent KUBECACHEDIR=/nonexistent KUBERNETES_SERVICE_HOST=192.0.2.1 KUBERNETES_SERVICE_PORT=443 POD_NAME=other POD_NAMESPACE=other
export GATEHOUSE_TOKEN_STORE=keyring GOGC=200 GOMEMLIMIT=20GiB CI=true GITHUB_ACTIONS=true
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=commit.gpgsign GIT_CONFIG_VALUE_0=true GIT_CONFIG_KEY_1=init.defaultBranch GIT_CONFIG_VALUE_1=trunk
exec "$@"
