package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// recommendedCacheTTL is how long kube-apiserver should keep the answer to a
// token. It bounds how long a revoked token is still accepted, with ten seconds
// more of another cache. Thirty seconds keep that below a minute and still have
// nearly every request of a busy client answered from the cache; the default of
// two minutes leaves a thief two minutes.
const recommendedCacheTTL = "30s"

// flag is a flag of kube-apiserver.
type flag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (f flag) String() string { return "--" + f.Name + "=" + f.Value }

// flags are those that make kube-apiserver ask Gatehouse about tokens, or present its
// certificate for admission reviews.
func (o *KubeconfigOptions) flags() []flag {
	if o.Admission {
		return []flag{{"admission-control-config-file", o.configurationPath()}}
	}
	return []flag{
		{"authentication-token-webhook-config-file", o.path()},
		{"authentication-token-webhook-version", "v1"},
		{"authentication-token-webhook-cache-ttl", recommendedCacheTTL},
	}
}

// Flags are the flags of kube-apiserver that go with the Kubeconfig, one a line,
// or as a JSON object from the name without dashes to the value.
func Flags(o KubeconfigOptions, asJSON bool) ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if !asJSON {
		for _, f := range o.flags() {
			fmt.Fprintln(&out, f)
		}
		return out.Bytes(), nil
	}
	values := make(map[string]string)
	for _, f := range o.flags() {
		values[f.Name] = f.Value
	}
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(values); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
