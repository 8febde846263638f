package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// APIServerTimeout bounds what is asked of an API server.
const APIServerTimeout = 30 * time.Second

// ClusterFlags name a cluster: a context of a kubeconfig, or the cluster of this pod.
type ClusterFlags struct {
	ContextFlags
	InCluster bool
}

// Add adds the flags to a command.
func (f *ClusterFlags) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.InCluster, "in-cluster", false, "use the cluster of the pod in which this command runs, as its service account")
	f.ContextFlags.Add(cmd)
}

// Given reports whether a cluster is named.
func (f *ClusterFlags) Given() bool { return f.InCluster || f.Named() }

// Check returns an error for flags that conflict.
func (f *ClusterFlags) Check() error {
	if f.InCluster && f.Named() {
		return errors.New("--in-cluster excludes --kubeconfig and --context")
	}
	return nil
}

// Connect returns the configuration of a client of the named API server. The hint is an alternative to a kubeconfig.
func (f *ClusterFlags) Connect(hint string) (*rest.Config, error) {
	var (
		config *rest.Config
		err    error
	)
	if f.InCluster {
		if config, err = cluster.InCluster(); err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
	} else {
		if config, err = f.Config().ClientConfig(); err != nil {
			if _, _, known := f.read(); known != nil {
				return nil, WithHint(known, "--kubeconfig FILE, or "+hint)
			}
			return nil, fmt.Errorf("invalid kubeconfig: %w", err)
		}
	}
	config.Timeout = APIServerTimeout
	return config, nil
}

// Arguments returns the flags, for another command.
func (f *ClusterFlags) Arguments() (words []string) {
	if f.InCluster {
		return []string{"--in-cluster"}
	}
	return f.ContextFlags.Arguments()
}

// Arguments returns the flags, for another command, such as kubectl.
func (f *ContextFlags) Arguments() (words []string) {
	if f.Kubeconfig != "" {
		words = append(words, "--kubeconfig", f.Kubeconfig)
	}
	if f.Context != "" {
		words = append(words, "--context", f.Context)
	}
	return words
}

// Words returns the flags, for another command.
func (f *ContextFlags) Words() string { return quoted(f.Arguments()) }

// AddDryRunFlag adds --dry-run to a command that writes to a cluster.
func AddDryRunFlag(cmd *cobra.Command, value *bool) {
	cmd.Flags().BoolVar(value, "dry-run", false, "change nothing and show what would be done")
}

// Words returns the flags, for a command in a hint.
func (f *ClusterFlags) Words() string { return quoted(f.Arguments()) }

// quoted returns words for a shell, each behind a blank.
func quoted(words []string) (text string) {
	for _, word := range words {
		text += " " + shell.Quote(word)
	}
	return text
}
