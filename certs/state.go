package certs

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is a CA and its rotation: what replicas share. It is immutable.
type State struct {
	// Generation grows with every change.
	Generation int64
	// Since is when the phase began.
	Since time.Time
	// Requested reports whether an administrator asked for the rotation, and Done is the last
	// request that a rotation began for.
	Requested bool
	Done      string
	// Hold is Policy.Hold of the server that steps, so that others know how long a phase lasts.
	Hold time.Duration
	// Active signs. Next is trusted, and will sign. Retired signed before, has no key, and is
	// trusted for as long as replicas may serve its certificates. Each of the last two may be nil,
	// and one of them is.
	Active, Next, Retired *Authority
}

// Phase is a step of a rotation.
type Phase string

// The phases.
const (
	// Stable is when one CA is trusted, and signs.
	Stable Phase = "Stable"
	// Published is when a second one is stored, and being written into every registration. It signs
	// when all have had it for the hold.
	Published Phase = "Published"
	// Activated is when the second one signs, and the first one is still trusted.
	Activated Phase = "Activated"
)

// Phases returns all phases, in their order.
func Phases() []Phase { return []Phase{Stable, Published, Activated} }

// Phase returns that of the state.
func (s *State) Phase() Phase {
	switch {
	case s.Next != nil:
		return Published
	case s.Retired != nil:
		return Activated
	default:
		return Stable
	}
}

// Authorities returns the active, the next and the retired one, without nil.
func (s *State) Authorities() []*Authority {
	return slices.DeleteFunc([]*Authority{s.Active, s.Next, s.Retired}, func(a *Authority) bool { return a == nil })
}

// Trusted returns the certificates that clients must trust.
func (s *State) Trusted() []*x509.Certificate {
	var list []*x509.Certificate
	for _, a := range s.Authorities() {
		list = append(list, a.Cert)
	}
	return list
}

// newest returns the CA that will be trusted for longest.
func (s *State) newest() *Authority {
	if s.Next != nil {
		return s.Next
	}
	return s.Active
}

// The keys of an encoded State.
const (
	KeyState   = "state.json"
	KeyBundle  = "ca.crt"
	keyActive  = "active"
	keyNext    = "next"
	keyRetired = "retired"
	endCert    = ".crt"
	endKey     = ".key"

	blockCertificate = "CERTIFICATE"
	blockPrivateKey  = "PRIVATE KEY"
	// largest is the largest value that is read: a certificate takes less than one KiB.
	largest = 64 << 10
)

// Keys returns all keys of an encoded State.
func Keys() []string {
	return []string{
		KeyBundle, KeyState, keyActive + endCert, keyActive + endKey, keyNext + endCert, keyNext + endKey, keyRetired + endCert,
	}
}

// description is the content of KeyState.
type description struct {
	Generation int64           `json:"generation"`
	Phase      Phase           `json:"phase"`
	Since      time.Time       `json:"since"`
	Requested  bool            `json:"requested,omitempty"`
	Done       string          `json:"done,omitempty"`
	Hold       metav1.Duration `json:"hold,omitzero"`
}

// Encode encodes a State. The bundle is for people and clients; Decode ignores it.
func Encode(s *State) (map[string][]byte, error) {
	text, err := json.MarshalIndent(description{s.Generation, s.Phase(), s.Since.UTC(), s.Requested, s.Done, metav1.Duration{Duration: s.Hold}}, "", "  ")
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{KeyBundle: Bundle(s.Trusted()), KeyState: append(text, '\n')}
	for name, a := range map[string]*Authority{keyActive: s.Active, keyNext: s.Next, keyRetired: s.Retired} {
		if a == nil {
			continue
		}
		data[name+endCert] = Bundle([]*x509.Certificate{a.Cert})
		if a.Key != nil {
			if data[name+endKey], err = encodeKey(a.Key); err != nil {
				return nil, fmt.Errorf("%s: %w", name+endKey, err)
			}
		}
	}
	return data, nil
}

// ErrEmpty means that no State is stored.
var ErrEmpty = errors.New("there is no CA in it")

// Decode decodes a State. The error is ErrEmpty if there is none, and otherwise names a key and what
// is wrong with it; it never holds a part of a private key. It ignores unknown keys.
func Decode(data map[string][]byte) (*State, error) {
	if !slices.ContainsFunc(Keys(), func(key string) bool { return len(bytes.TrimSpace(data[key])) > 0 }) {
		return nil, ErrEmpty
	}
	var d description
	if err := json.Unmarshal(data[KeyState], &d); err != nil || d.Generation < 1 || !slices.Contains(Phases(), d.Phase) {
		return nil, errors.New(KeyState + ": is missing or damaged")
	}
	s := &State{Generation: d.Generation, Since: d.Since, Requested: d.Requested, Done: d.Done, Hold: d.Hold.Duration}
	var problems []string
	read := func(name string, hasKey bool) *Authority {
		a, err := decodeAuthority(data, name, hasKey)
		if err != nil {
			problems = append(problems, err.Error())
		}
		return a
	}
	s.Active = read(keyActive, true)
	switch d.Phase {
	case Published:
		s.Next = read(keyNext, true)
	case Activated:
		s.Retired = read(keyRetired, false)
	case Stable:
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return s, nil
}

// decodeAuthority decodes a CA, with its private key if it has one.
func decodeAuthority(data map[string][]byte, name string, hasKey bool) (*Authority, error) {
	der, err := decodeBlock(data, name+endCert, blockCertificate)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil || !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New(name + endCert + ": is not the certificate of a CA")
	}
	a := &Authority{Cert: cert}
	if !hasKey {
		return a, nil
	}
	if der, err = decodeBlock(data, name+endKey, blockPrivateKey); err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	signer, signs := key.(crypto.Signer)
	if err != nil || !signs {
		return nil, errors.New(name + endKey + ": cannot be read") // what the parser says may hold bytes of it
	}
	public, ok := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return nil, errors.New(name + endKey + ": is not the key of " + name + endCert)
	}
	a.Key = signer
	return a, nil
}

func decodeBlock(data map[string][]byte, key, kind string) ([]byte, error) {
	text := data[key]
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New(key + ": is missing")
	}
	block, rest := pem.Decode(text[:min(len(text), largest)])
	if block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%s: is not one PEM block of type %s", key, kind)
	}
	return block.Bytes, nil
}
