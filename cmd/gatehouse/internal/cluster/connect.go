package cluster

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// FromKubeconfig is how to reach the API server of a kubeconfig file's current
// context. Paths in the file are relative to the file. The error names the file
// and says what to do.
func FromKubeconfig(path string) (*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return nil, fmt.Errorf("%q cannot be read: %w (hint: name a kubeconfig file)", path, err)
	}
	if file.CurrentContext == "" {
		return nil, fmt.Errorf("%q has no current-context (hint: kubectl config --kubeconfig %s use-context NAME)", path, shell.Quote(path))
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%q, context %q: %w", path, file.CurrentContext, err)
	}
	return config, nil
}

// InCluster is how a pod reaches the API server of its cluster, as its service
// account.
func InCluster() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("this process does not run in a pod (hint: use --kubeconfig FILE)")
	case err != nil:
		return nil, fmt.Errorf("the service account cannot be used: %w (hint: automountServiceAccountToken must not be false)", err)
	}
	return config, nil
}
