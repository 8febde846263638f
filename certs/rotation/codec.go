package rotation

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
)

// The keys of an encoded State.
const (
	KeyState        = "state.json"
	KeyBundle       = "ca.crt"
	KeyCurrentCert  = "current.crt"
	KeyCurrentKey   = "current.key"
	KeyPendingCert  = "pending.crt"
	KeyPendingKey   = "pending.key"
	KeyPreviousCert = "previous.crt"
)

// Keys returns all keys of an encoded State, in alphabetical order.
func Keys() []string {
	return []string{KeyBundle, KeyCurrentCert, KeyCurrentKey, KeyPendingCert, KeyPendingKey, KeyPreviousCert, KeyState}
}

const (
	blockCertificate = "CERTIFICATE"
	blockPrivateKey  = "PRIVATE KEY"
	// version is that of the format.
	version = 1
	// largest is the largest value that is read: a certificate takes less than one KiB.
	largest = 64 << 10
	// lastGeneration is larger than any real one, and far from an overflow.
	lastGeneration = 1 << 53
)

// description is the content of KeyState. Its fingerprints detect certificates that another
// client wrote.
type description struct {
	Version    int               `json:"version"`
	Lineage    string            `json:"lineage"`
	Created    time.Time         `json:"created"`
	Generation int64             `json:"generation"`
	Phase      Phase             `json:"phase"`
	Since      time.Time         `json:"since"`
	Cause      Cause             `json:"cause,omitempty"`
	Request    *Request          `json:"request,omitempty"`
	Done       string            `json:"done,omitempty"`
	Absorbed   []Absorbed        `json:"absorbed,omitempty"`
	Authority  map[string]string `json:"authorities"`
}

// Encode encodes a State. The bundle is for people and clients; Decode ignores it.
func Encode(s *State, now time.Time) (map[string][]byte, error) {
	data := map[string][]byte{KeyBundle: Bundle(s.Trusted(now))}
	d := description{
		Version: version, Lineage: s.Lineage, Created: s.Created.UTC(), Generation: s.Generation, Phase: s.Phase, Since: s.Since.UTC(),
		Cause: s.Cause, Request: s.Request, Done: s.Done, Absorbed: s.Absorbed, Authority: map[string]string{},
	}
	for _, a := range []struct {
		authority *Authority
		cert, key string
	}{{s.Current, KeyCurrentCert, KeyCurrentKey}, {s.Pending, KeyPendingCert, KeyPendingKey}, {s.Previous, KeyPreviousCert, ""}} {
		if a.authority == nil {
			continue
		}
		data[a.cert] = Bundle([]*x509.Certificate{a.authority.Cert})
		d.Authority[a.cert] = a.authority.ID()
		if a.key == "" {
			continue
		}
		der, err := x509.MarshalPKCS8PrivateKey(a.authority.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.key, err)
		}
		data[a.key] = pem.EncodeToMemory(&pem.Block{Type: blockPrivateKey, Bytes: der})
	}
	text, err := json.MarshalIndent(&d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyState, err)
	}
	data[KeyState] = append(text, '\n')
	return data, nil
}

// ErrEmpty means that no State is stored.
var ErrEmpty = errors.New("it is empty")

// ErrNewer means that a newer version wrote the state, which must not be changed: otherwise
// two versions would overwrite each other's state for as long as both run.
var ErrNewer = errors.New("was written by a newer version of Gatehouse: use that version")

// Damage lists what is wrong with an encoded State, each with the key in front. It never
// holds a part of a private key.
type Damage []string //nolint:errname // it is a list of findings, and reads as what it is at its uses

func (d Damage) Error() string { return strings.Join(d, "; ") }

// Decode decodes a State. The error is ErrEmpty if there is none, wraps ErrNewer if a newer
// version wrote it, and is a Damage otherwise. It ignores unknown keys.
func Decode(data map[string][]byte) (*State, error) {
	known := Keys()
	if !slices.ContainsFunc(known, func(key string) bool { return len(bytes.TrimSpace(data[key])) > 0 }) {
		return nil, ErrEmpty
	}
	var damage Damage
	d, err := decodeDescription(data[KeyState])
	switch {
	case errors.Is(err, ErrNewer):
		return nil, &keyError{KeyState, err}
	case err != nil:
		damage = append(damage, KeyState+": "+err.Error())
	}
	described := err == nil
	s := &State{
		Lineage: d.Lineage, Created: d.Created, Generation: d.Generation, Phase: d.Phase, Since: d.Since,
		Cause: d.Cause, Request: d.Request, Done: d.Done, Absorbed: d.Absorbed,
	}
	read := func(cert, key string) *Authority {
		a, err := decodeAuthority(data, cert, key)
		if err == nil && described && d.Authority[cert] != a.ID() {
			a, err = nil, &keyError{cert, errors.New("is not the CA that " + KeyState + " describes: another program wrote it")}
		}
		if err != nil {
			damage = append(damage, err.Error())
		}
		return a
	}
	s.Current = read(KeyCurrentCert, KeyCurrentKey)
	if s.Phase == Publish || s.Phase == Hold {
		s.Pending = read(KeyPendingCert, KeyPendingKey)
	}
	if s.Phase != Stable && d.Authority[KeyPreviousCert] != "" {
		s.Previous = read(KeyPreviousCert, "")
	}
	if len(damage) > 0 {
		return nil, damage
	}
	return s, nil
}

func decodeDescription(text []byte) (description, error) {
	var d description
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return d, errors.New("is missing")
	case len(text) > largest:
		return d, fmt.Errorf("is larger than %d bytes", largest)
	}
	var format struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(text, &format) == nil && format.Version > version {
		return d, ErrNewer
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return description{}, errors.New("cannot be read as JSON")
	}
	switch {
	case d.Version != version, d.Lineage == "", d.Created.IsZero(), d.Generation < 1, d.Generation > lastGeneration:
		return description{}, errors.New("lacks its version, lineage, creation time or generation")
	}
	switch d.Phase {
	case Stable, Publish, Hold, Activate:
		return d, nil
	default:
		return description{}, errors.New("has an unknown phase")
	}
}

// keyError is an error about a key.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return e.key + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// decodeAuthority decodes a CA. If keyName is not "", it requires the private key.
func decodeAuthority(data map[string][]byte, certName, keyName string) (*Authority, error) {
	der, err := decodeBlock(data[certName], blockCertificate)
	if err != nil {
		return nil, &keyError{certName, err}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, &keyError{certName, errors.New("is not a valid certificate")}
	}
	if !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, &keyError{certName, errors.New("is not the certificate of a CA")}
	}
	a := &Authority{Cert: cert}
	if keyName == "" {
		return a, nil
	}
	if der, err = decodeBlock(data[keyName], blockPrivateKey); err != nil {
		return nil, &keyError{keyName, err}
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, &keyError{keyName, errors.New("cannot be read")} // what the parser says may hold bytes of it
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, &keyError{keyName, errors.New("is not a signing key")}
	}
	public, ok := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return nil, &keyError{keyName, errors.New("is not the key of " + certName)}
	}
	a.Key = signer
	return a, nil
}

func decodeBlock(text []byte, kind string) ([]byte, error) {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("is missing")
	case len(text) > largest:
		return nil, fmt.Errorf("is larger than %d bytes", largest)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("is not PEM, or is cut off")
	case block.Type != kind:
		return nil, fmt.Errorf("is a PEM block of another type than %s", kind)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("has more than one PEM block")
	}
	return block.Bytes, nil
}
