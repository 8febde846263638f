package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/source/cluster"
)

// clusterFlags name a cluster: a context of a kubeconfig, or the cluster of the pod
// that this runs in.
type clusterFlags struct {
	contextFlags
	inCluster bool
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.inCluster, "in-cluster", false, "ask the API server of the pod that this runs in, as its service account")
	f.contextFlags.add(cmd)
}

// given tells whether a cluster was asked for.
func (f *clusterFlags) given() bool { return f.inCluster || f.named() }

// check tells what is wrong with the flags.
func (f *clusterFlags) check() error {
	if f.inCluster && f.named() {
		return errors.New("--in-cluster goes with neither --kubeconfig nor --context")
	}
	return nil
}

// connect is how to reach the API server that the flags name. The hint is what else
// could be given where there is no kubeconfig.
func (f *clusterFlags) connect(hint string) (*rest.Config, error) {
	var (
		config *rest.Config
		err    error
	)
	if f.inCluster {
		if config, err = cluster.InCluster(); err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
	} else {
		config, err = f.config().ClientConfig()
		if clientcmd.IsEmptyConfig(err) {
			return nil, fmt.Errorf("there is no kubeconfig, which says where the API server is (hint: --kubeconfig FILE, or %s)", hint)
		}
		if err != nil {
			return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
		}
	}
	config.Timeout = apiServerTimeout
	return config, nil
}

// words are the flags, for another command.
func (f *clusterFlags) words() string {
	if f.inCluster {
		return " --in-cluster"
	}
	words := ""
	if f.kubeconfig != "" {
		words += " --kubeconfig " + shellWord(f.kubeconfig)
	}
	if f.context != "" {
		words += " --context " + shellWord(f.context)
	}
	return words
}
