package kubelet

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/container"
)

// UID is the user of a container: one of those that OpenShift assigns to a namespace.
const UID = 1000690000

// credentials is where a program finds the API server's CA and its token.
const credentials = "/var/run/secrets/kubernetes.io/serviceaccount" // #nosec G101 -- a path

// Image is an unpacked image.
type Image struct {
	// Dir has its layers.
	Dir string
	// Entrypoint and Env are those of its configuration.
	Entrypoint, Env []string
}

// contain returns the image's own program in a container.
func (p *Pod) contain(ctx context.Context, image *Image, mounts map[string]string, args, environ []string) (*cluster.Process, error) {
	token, err := p.token(ctx)
	if err != nil {
		return nil, err
	}
	access := p.kubelet.options.Cluster.Config()
	server, err := url.Parse(access.Host)
	if err != nil {
		return nil, err
	}
	account := filepath.Join(p.dir, "serviceaccount")
	if err := os.MkdirAll(account, 0o700); err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"token": []byte(token), "ca.crt": access.CAData, "namespace": []byte(p.spec.Namespace)} {
		if err := os.WriteFile(filepath.Join(account, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	mounts[credentials] = account
	// What is mounted belongs to the user, as fsGroup has it.
	if os.Getuid() == 0 {
		for _, dir := range mounts {
			err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
				return errors.Join(err, os.Chown(path, UID, 0)) // #nosec G122 -- nobody else writes there
			})
			if err != nil {
				return nil, err
			}
		}
	}
	root := filepath.Join(p.dir, "root")
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	return container.New(container.Options{
		Image: image.Dir, Root: root, UID: UID, Mounts: mounts, Args: slices.Concat(image.Entrypoint, args), Log: p.Log(),
		Env: slices.Concat(image.Env, []string{"HOME=/", "KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}, environ),
	})
}
