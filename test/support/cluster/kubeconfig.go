package cluster

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig file with one server and one user. Besides for kubectl, it serves for the files
// that the API server's webhook flags want: --authentication-token-webhook-config-file and
// --authorization-webhook-config-file. They name the webhook's URL as the server; certPEM and keyPEM, both or
// neither, are what the API server presents there. The file must exist before the API server starts.
func WriteKubeconfig(path, server string, caPEM, certPEM, keyPEM []byte) error {
	return WriteKubeconfigFor(path, server, caPEM, &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM})
}

// WriteKubeconfigFor is [WriteKubeconfig] for a user with other credentials.
func WriteKubeconfigFor(path, server string, caPEM []byte, user *clientcmdapi.AuthInfo) error {
	const name = "gatehouse"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caPEM}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig for %s: %w", server, err)
	}
	return writePrivate(path, content)
}

func writePrivate(path string, content []byte) error {
	err := os.WriteFile(path, content, 0o600)
	if err != nil {
		return fmt.Errorf("write for the control plane: %w", err)
	}
	return nil
}
