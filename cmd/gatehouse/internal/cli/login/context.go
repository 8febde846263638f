package login

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// loginOf returns the login flags of the context. The hint is for a kubeconfig without one.
func loginOf(f *cli.ContextFlags, hint string) (*loginFlags, error) {
	name, user, err := f.User()
	if err != nil {
		return nil, cli.WithHint(err, hint)
	}
	login, err := execLogin(user.Exec)
	if err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	if login == nil {
		return nil, fmt.Errorf("the context %q does not log in with Gatehouse (hint: '%s kubeconfig' writes one that does)", name, cli.DisplayName(os.Args[0]))
	}
	return login, nil
}

// execLogin returns the login flags in the exec section of a kubeconfig, as gatehouse
// kubeconfig wrote it, or nil if it runs another program.
func execLogin(exec *clientcmdapi.ExecConfig) (*loginFlags, error) {
	if !isGatehouseLogin(exec) {
		return nil, nil
	}
	args := exec.Args[1:]
	if exec.Args[0] == cli.PluginVerb {
		args = args[1:]
	}
	var f loginFlags
	flags := pflag.NewFlagSet("login", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	f.add(flags)
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("its user's exec section: %w", err)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("its user's exec section:\n%w", err)
	}
	return &f, nil
}

// isGatehouseLogin reports whether an exec section runs this program's login.
func isGatehouseLogin(exec *clientcmdapi.ExecConfig) bool {
	if exec == nil {
		return false
	}
	command := strings.TrimSuffix(filepath.Base(exec.Command), ".exe")
	switch {
	case command == "kubectl":
		return len(exec.Args) > 1 && exec.Args[0] == cli.PluginVerb && exec.Args[1] == "login"
	case strings.HasPrefix(command, "gatehouse"), strings.HasPrefix(command, "kubectl-gatehouse"):
		return len(exec.Args) > 0 && exec.Args[0] == "login"
	}
	return false
}
