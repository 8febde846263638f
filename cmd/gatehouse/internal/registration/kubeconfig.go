package registration

import (
	"errors"
	"fmt"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// KubeconfigOptions say where kube-apiserver finds Gatehouse for token reviews,
// and which files it uses. The paths are on the hosts that kube-apiserver runs
// on; a relative path is relative to the kubeconfig.
type KubeconfigOptions struct {
	// Name is the name of the cluster and of the context.
	Name string
	// Server must be a URL: kube-apiserver does not resolve names of Services.
	Server Server
	// CAFile has the CA certificates that the serving certificate is verified
	// with, ClientCert and ClientKey what kube-apiserver shows to Gatehouse.
	CAFile, ClientCert, ClientKey string
}

// Kubeconfig makes the file for kube-apiserver's
// --authentication-token-webhook-config-file. It holds paths and no data, so
// that certificates can be renewed without touching it.
func Kubeconfig(o KubeconfigOptions) (Document, error) {
	var problems []error
	if o.Server.URL == "" {
		problems = append(problems, errors.New("token reviews need a URL: kube-apiserver reads their address from a file and does not resolve the names of Services"))
	}
	if o.CAFile == "" {
		problems = append(problems, errors.New("token reviews need the path of a CA file on the hosts of kube-apiserver"))
	}
	if o.ClientCert == "" || o.ClientKey == "" {
		problems = append(problems, errors.New("token reviews need the paths of a client certificate and its key on the hosts of kube-apiserver: Gatehouse answers nobody else"))
	}
	if err := errors.Join(problems...); err != nil {
		return Document{}, err
	}
	const user = "kube-apiserver"
	return Document{
		comment: fmt.Sprintf(`This is not an object of the API: save it as a file on each host of
kube-apiserver, and start kube-apiserver with
  --authentication-token-webhook-config-file=/etc/kubernetes/%s.yaml
  --authentication-token-webhook-version=v1
  --authentication-token-webhook-cache-ttl=30s
The default version is v1beta1, which Gatehouse answers too. A revoked token is
accepted for the TTL and 10 seconds more; its default is two minutes.`, o.Name),
		object: &clientcmdv1.Config{
			APIVersion: "v1",
			Kind:       "Config",
			Clusters: []clientcmdv1.NamedCluster{{Name: o.Name, Cluster: clientcmdv1.Cluster{
				Server:               o.Server.URL + webhooks.AuthenticatePath,
				CertificateAuthority: o.CAFile,
			}}},
			AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: user, AuthInfo: clientcmdv1.AuthInfo{
				ClientCertificate: o.ClientCert,
				ClientKey:         o.ClientKey,
			}}},
			Contexts:       []clientcmdv1.NamedContext{{Name: o.Name, Context: clientcmdv1.Context{Cluster: o.Name, AuthInfo: user}}},
			CurrentContext: o.Name,
		},
	}, nil
}
