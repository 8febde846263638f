package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
)

// ExecInfoVariable is the environment variable by which client-go tells a
// credential plugin what it wants.
const ExecInfoVariable = "KUBERNETES_EXEC_INFO"

// Call is how client-go calls a credential plugin.
type Call struct {
	// Interactive says that the plugin has the standard input of the program, a
	// terminal. It is nil if the program did not say.
	Interactive *bool
}

// ParseCall reads the value of ExecInfoVariable. The value is not repeated in
// errors: it may hold what is the cluster's.
func ParseCall(info string) (Call, error) {
	var credential struct {
		metav1.TypeMeta
		Spec struct {
			Interactive *bool `json:"interactive"`
		} `json:"spec"`
	}
	const hint = "(hint: only kubectl sets this variable)"
	if err := json.Unmarshal([]byte(info), &credential); err != nil {
		return Call{}, errors.New(ExecInfoVariable + ": must be an ExecCredential in JSON " + hint)
	}
	if credential.Kind != "ExecCredential" {
		return Call{}, fmt.Errorf("%s: kind %q must be ExecCredential %s", ExecInfoVariable, printable(credential.Kind), hint)
	}
	if v1 := clientauthenticationv1.SchemeGroupVersion.String(); credential.APIVersion != v1 {
		return Call{}, fmt.Errorf("%s: apiVersion %q must be %s (hint: see apiVersion in the exec section of the kubeconfig)",
			ExecInfoVariable, printable(credential.APIVersion), v1)
	}
	return Call{Interactive: credential.Spec.Interactive}, nil
}

// Answer returns the ExecCredential for a call. It is the one place that a token goes
// to kubectl through.
func (c Call) Answer(credential *Credential) ([]byte, error) {
	expires := metav1.NewTime(credential.UsableUntil().UTC().Truncate(time.Second))
	text, err := json.Marshal(clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Spec:     clientauthenticationv1.ExecCredentialSpec{Interactive: c.Interactive != nil && *c.Interactive},
		Status:   &clientauthenticationv1.ExecCredentialStatus{ExpirationTimestamp: &expires, Token: credential.Token},
	})
	return append(text, '\n'), err
}
