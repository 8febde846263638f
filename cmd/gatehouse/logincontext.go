package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextFlags name a context of a kubeconfig.
type contextFlags struct{ kubeconfig, context string }

func (f *contextFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG or ~/.kube/config)")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig (default the current one)")
	_ = cmd.MarkFlagFilename("kubeconfig") // the flags exist
	_ = cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := f.config().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for name := range config.Contexts {
			names = append(names, name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// named tells whether a kubeconfig was asked for by name.
func (f *contextFlags) named() bool { return f.kubeconfig != "" || f.context != "" }

func (f *contextFlags) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

// user is the name of the context and its user in the kubeconfig.
func (f *contextFlags) user() (name string, user *clientcmdapi.AuthInfo, err error) {
	config, err := f.config().RawConfig()
	if err != nil {
		return "", nil, fmt.Errorf("the kubeconfig cannot be read: %w", err)
	}
	if name = f.context; name == "" {
		name = config.CurrentContext
	}
	if name == "" {
		return "", nil, errors.New("the kubeconfig has no current context")
	}
	context := config.Contexts[name]
	if context == nil {
		return "", nil, fmt.Errorf("the kubeconfig has no context %q", name)
	}
	if context.AuthInfo == "" {
		return "", nil, fmt.Errorf("the context %q of the kubeconfig names no user (hint: kubectl config set-context %s --user NAME)", name, shellWord(name))
	}
	if user = config.AuthInfos[context.AuthInfo]; user == nil {
		return "", nil, fmt.Errorf("the kubeconfig has no user %q, which is that of the context %q", context.AuthInfo, name)
	}
	return name, user, nil
}

// loginOf returns the login flags of the context.
func loginOf(f *contextFlags) (*loginFlags, error) {
	name, user, err := f.user()
	if err != nil {
		return nil, err
	}
	login, err := execLogin(user.Exec)
	if err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	if login == nil {
		return nil, fmt.Errorf("the context %q does not log in with Gatehouse (hint: %s kubeconfig makes one that does)", name, displayName(os.Args[0]))
	}
	return login, nil
}

// contextOf returns the name of a context whose login has exactly these checked flags, preferably the current one, and ""
// without one.
func contextOf(f *contextFlags, login *loginFlags) string {
	want, err := login.args()
	if err != nil {
		return ""
	}
	config, err := f.config().RawConfig()
	if err != nil {
		return ""
	}
	names := append([]string{config.CurrentContext}, slices.Sorted(maps.Keys(config.Contexts))...)
	for _, name := range names {
		context := config.Contexts[name]
		if context == nil || config.AuthInfos[context.AuthInfo] == nil {
			continue
		}
		own, err := execLogin(config.AuthInfos[context.AuthInfo].Exec)
		if err != nil || own == nil {
			continue
		}
		if args, err := own.args(); err == nil && slices.Equal(args, want) {
			return name
		}
	}
	return ""
}

// loginsOf returns the login flags of all users of the kubeconfig that log in with this program. A kubeconfig that cannot be
// read has none.
func loginsOf(f *contextFlags) []*loginFlags {
	config, err := f.config().RawConfig()
	if err != nil {
		return nil
	}
	var all []*loginFlags
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		if login, err := execLogin(config.AuthInfos[name].Exec); err == nil && login != nil {
			all = append(all, login)
		}
	}
	return all
}

// execLogin is the way to log in that the exec section of a kubeconfig says, as
// gatehouse kubeconfig wrote it; nil if it runs another program.
func execLogin(exec *clientcmdapi.ExecConfig) (*loginFlags, error) {
	if !isGatehouseLogin(exec) {
		return nil, nil
	}
	args := exec.Args[1:]
	if exec.Args[0] == pluginVerb {
		args = args[1:]
	}
	var f loginFlags
	flags := pflag.NewFlagSet("login", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	f.add(flags)
	flags.BoolVar(&f.passwordStdin, "password-stdin", false, "")
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("its user's exec section: %w", err)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("its user's exec section:\n%w", err)
	}
	return &f, nil
}

// pluginVerb is what follows kubectl when this program is its plugin.
const pluginVerb = "gatehouse"

// isGatehouseLogin tells whether an exec section runs this program's login.
func isGatehouseLogin(exec *clientcmdapi.ExecConfig) bool {
	if exec == nil {
		return false
	}
	command := strings.TrimSuffix(filepath.Base(exec.Command), ".exe")
	switch {
	case command == "kubectl":
		return len(exec.Args) > 1 && exec.Args[0] == pluginVerb && exec.Args[1] == "login"
	case strings.HasPrefix(command, "gatehouse"), strings.HasPrefix(command, "kubectl-gatehouse"):
		return len(exec.Args) > 0 && exec.Args[0] == "login"
	}
	return false
}
