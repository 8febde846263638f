package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// ContextFlags name a context of a kubeconfig.
type ContextFlags struct{ Kubeconfig, Context string }

// Add adds the flags to a command.
func (f *ContextFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG or ~/.kube/config)")
	cmd.Flags().StringVar(&f.Context, "context", "", "context of the kubeconfig (default the current one)")
	_ = cmd.MarkFlagFilename("kubeconfig") // the flags exist
	_ = cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := f.Config().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Collect(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
	})
}

// Named reports whether a kubeconfig or context is named.
func (f *ContextFlags) Named() bool { return f.Kubeconfig != "" || f.Context != "" }

// Config returns the kubeconfig that the flags name, or the default one.
func (f *ContextFlags) Config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	rules.WarnIfAllMissing = false
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
}

// checkExists returns an error that lists where a kubeconfig was searched, if there is none. A missing --kubeconfig is an
// error of reading it.
func (f *ContextFlags) checkExists() error {
	if f.Kubeconfig != "" {
		return nil
	}
	files := clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
	for _, file := range files {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if value := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); value != "" {
		return fmt.Errorf("there is no kubeconfig: $KUBECONFIG names files that do not exist: %q", value)
	}
	return fmt.Errorf("there is no kubeconfig: $KUBECONFIG is not set, and %s does not exist", strings.Join(files, ", "))
}

// WithHint adds a hint to an error that has none.
func WithHint(err error, hint string) error {
	if strings.Contains(err.Error(), "(hint: ") {
		return err
	}
	return fmt.Errorf("%w (hint: %s)", err, hint)
}

// read returns the kubeconfig, and the name of the context, which is in it.
func (f *ContextFlags) read() (config clientcmdapi.Config, name string, err error) {
	config, err = f.Config().RawConfig()
	if err != nil {
		return config, "", fmt.Errorf("the kubeconfig cannot be read: %w", err)
	}
	if err := f.checkExists(); err != nil {
		return config, "", err
	}
	name = cmp.Or(f.Context, config.CurrentContext)
	if name == "" {
		return config, "", errors.New("the kubeconfig has no current context")
	}
	if config.Contexts[name] == nil {
		hint := cmp.Or(diagnostic.DidYouMean(name, slices.Collect(maps.Keys(config.Contexts))...), "kubectl config get-contexts lists the contexts")
		return config, "", fmt.Errorf("the kubeconfig has no context %q (hint: %s)", name, hint)
	}
	return config, name, nil
}

// User returns the name of the context and its user in the kubeconfig.
func (f *ContextFlags) User() (name string, user *clientcmdapi.AuthInfo, err error) {
	config, name, err := f.read()
	if err != nil {
		return "", nil, err
	}
	context := config.Contexts[name]
	if context.AuthInfo == "" {
		return "", nil, fmt.Errorf("the context %q of the kubeconfig has no user (hint: kubectl config set-context %s --user NAME)", name, shell.Quote(name))
	}
	if user = config.AuthInfos[context.AuthInfo]; user == nil {
		return "", nil, fmt.Errorf("the kubeconfig has no user %q, which is that of the context %q", context.AuthInfo, name)
	}
	return name, user, nil
}
