package registration

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// KubeconfigOptions say where kube-apiserver finds Gatehouse for token reviews or access reviews, and
// which files it uses. The paths are on the hosts that kube-apiserver runs on; a
// relative path is relative to the kubeconfig.
type KubeconfigOptions struct {
	// Name is the name of the cluster and of the context: a DNS label.
	Name string
	// Server must be a URL: kube-apiserver does not resolve names of Services there.
	Server Server
	// CAFile has the CA certificates that the serving certificate is verified with,
	// ClientCert and ClientKey what kube-apiserver presents to Gatehouse.
	CAFile, ClientCert, ClientKey string
	// Path is where the kubeconfig itself will be.
	Path string
}

// recommendedCacheTTL is how long kube-apiserver should keep the answer to a
// token. It bounds how long a revoked token is still accepted, with ten seconds
// more of another cache. Thirty seconds keep that below a minute and still have
// nearly every request of a busy client answered from the cache; the default of
// two minutes leaves a thief two minutes.
const recommendedCacheTTL = "30s"

// Kubeconfig makes the file for kube-apiserver's
// --authentication-token-webhook-config-file. It holds paths and no data, so
// that certificates can be renewed without touching it.
func Kubeconfig(o KubeconfigOptions) (Document, error) {
	if err := o.check(); err != nil {
		return Document{}, err
	}
	return render("", "kubeconfig", struct {
		KubeconfigOptions

		Address, CacheTTL string
	}{o, o.Server.URL + webhooks.AuthenticatePath, recommendedCacheTTL})
}

const (
	// authorizationTimeout is how long kube-apiserver waits for an answer about access: each request of a token with a scope waits, and
	// is denied after it.
	authorizationTimeout = "3s"
	// authorizationTTL is how long kube-apiserver uses such an answer. It bounds for how long a changed scope has no effect.
	authorizationTTL = "10s"
)

// Authorization makes the kubeconfig for access reviews, and the file for kube-apiserver's --authorization-config, which will be at a
// path. Only requests of tokens with a scope are sent.
func Authorization(o KubeconfigOptions, configPath string) (Document, error) {
	if err := o.check(); err != nil {
		return Document{}, err
	}
	return render("", "authorization", struct {
		KubeconfigOptions

		Address, ConfigPath, ExtraKey, Timeout, TTL string
	}{o, o.Server.URL + webhooks.AuthorizePath, configPath, v1alpha1.ScopeExtraKey, authorizationTimeout, authorizationTTL})
}

// check returns all errors of the options.
func (o *KubeconfigOptions) check() error {
	var problems []error
	if len(validation.IsDNS1123Label(o.Name)) > 0 {
		problems = append(problems, fmt.Errorf("name %q: must be a DNS label", o.Name))
	}
	if o.Server.URL == "" {
		problems = append(problems, errors.New("the API server needs a URL: kube-apiserver reads the address from a file and does not resolve the names of Services (hint: --url https://HOST:PORT)"))
	}
	if o.CAFile == "" {
		problems = append(problems, errors.New("the API server needs the path of a CA file on the hosts of kube-apiserver (hint: --ca-file)"))
	}
	if o.ClientCert == "" || o.ClientKey == "" {
		problems = append(problems, errors.New("the API server needs the paths of a client certificate and its key on the hosts of kube-apiserver: Gatehouse rejects other callers (hint: --client-cert and --client-key)"))
	}
	for _, file := range []string{o.CAFile, o.ClientCert, o.ClientKey, o.Path} {
		if strings.ContainsFunc(file, func(r rune) bool { return !unicode.IsPrint(r) }) {
			problems = append(problems, fmt.Errorf("path %q: must be printable characters", file))
		}
	}
	return errors.Join(problems...)
}

// Notes returns notes about options that are valid but may be mistakes, in a fixed order.
func (o *KubeconfigOptions) Notes() []string {
	return o.Server.notes()
}
