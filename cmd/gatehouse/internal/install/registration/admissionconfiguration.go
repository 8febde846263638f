package registration

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
)

const (
	// admissionFile is the name of the AdmissionConfiguration on the hosts of kube-apiserver.
	admissionFile = "admission.yaml"
	// admissionConfigurationVersion is the version of what is in it.
	admissionConfigurationVersion = "apiserver.config.k8s.io/v1"
)

// AdmissionConfiguration makes the file for kube-apiserver's
// --admission-control-config-file, by which it presents a client certificate to
// admission webhooks: to those that the Kubeconfig with the same options names.
func AdmissionConfiguration(o KubeconfigOptions) (Document, error) {
	if err := o.check(); err != nil {
		return Document{}, err
	}
	plugin := func(name string) map[string]any {
		return map[string]any{"name": name, "configuration": map[string]any{
			"apiVersion": admissionConfigurationVersion, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": o.path(),
		}}
	}
	return Document{
		comment: fmt.Sprintf(`This is not an object of the API: save it as
  %s
on each host of kube-apiserver, with the kubeconfig that it names, which the same
command prints with --for kubeconfig, and only then start kube-apiserver with
  --admission-control-config-file=%[1]s
It does not start without these files, and reads both once. There is one such
file: where the flag is set already, add the plugins to that file.`, o.configurationPath()),
		object: map[string]any{
			"apiVersion": admissionConfigurationVersion, "kind": "AdmissionConfiguration",
			"plugins": []any{plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")},
		},
	}, nil
}

// configurationPath is where the AdmissionConfiguration is: beside the kubeconfig.
func (o *KubeconfigOptions) configurationPath() string {
	return path.Join(path.Dir(o.path()), admissionFile)
}

// admissionKubeconfig is the Kubeconfig for admission reviews. The name of its user
// says to which webhooks kube-apiserver presents the certificate. It has no context:
// that of one would be presented to every webhook of the cluster.
func (o *KubeconfigOptions) admissionKubeconfig() Document {
	return Document{
		comment: fmt.Sprintf(`This is not an object of the API: save it as
  %s
on each host of kube-apiserver, with the two files that it names. It is the file
that %s names. kube-apiserver presents the
certificate to the webhooks at the address that is the user's name, and to no
others. It reads this file once, and the certificate and the key again about every
five minutes.`, o.path(), o.configurationPath()),
		object: map[string]any{
			"apiVersion": "v1", "kind": "Config",
			"users": []any{map[string]any{
				"name": o.Server.webhookUser(),
				"user": map[string]any{"client-certificate": o.ClientCert, "client-key": o.ClientKey},
			}},
		},
	}
}

// webhookUser is the name of the user whose certificate kube-apiserver presents to
// webhooks at the server, see k8s.io/apiserver/pkg/util/webhook/authentication.go: host
// and port, the latter left out if it is 443.
func (s Server) webhookUser() string {
	const usual = 443
	if s.URL == "" {
		host := s.Service + "." + s.Namespace + ".svc"
		if s.Port == usual {
			return host
		}
		return net.JoinHostPort(host, strconv.Itoa(int(s.Port)))
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	if net.ParseIP(u.Hostname()).To4() == nil && net.ParseIP(u.Hostname()) != nil {
		if u.Port() == "" {
			return net.JoinHostPort(u.Host, strconv.Itoa(usual)) // with two pairs of brackets, as kube-apiserver does
		}
		return u.Host
	}
	if u.Port() == strconv.Itoa(usual) {
		return u.Hostname()
	}
	return u.Host
}
