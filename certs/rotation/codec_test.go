package rotation

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// written is a state of the phase, with all that it can have.
func written(t testing.TB, p Phase) *State {
	t.Helper()
	s := &State{
		Lineage: "6b7c", Created: epoch(), Generation: 7, Phase: p, Since: epoch().Add(1234567 * time.Nanosecond), Cause: Requested, Done: "first",
		Request: &Request{ID: "second", At: epoch().Add(time.Minute), Emergency: true}, Current: realAuthority(t, "current", nil),
		Absorbed: []Absorbed{{"1f", 3}, {"a0", 9}},
	}
	switch p {
	case Publish, Hold:
		s.Pending = realAuthority(t, "pending", nil)
	case Activate:
		s.Previous = external(realAuthority(t, "previous", nil))
	case Stable:
	}
	return s
}

func encode(t testing.TB, s *State) map[string][]byte {
	t.Helper()
	data, err := Encode(s, epoch())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// equal reports whether two states are the same, keys included.
func equal(t *testing.T, a, b *State) bool {
	t.Helper()
	same := func(a, b *Authority) bool {
		if a == nil || b == nil {
			return a == b
		}
		if !a.Cert.Equal(b.Cert) || (a.Key == nil) != (b.Key == nil) {
			return false
		}
		if a.Key == nil {
			return true
		}
		x, err := x509.MarshalPKCS8PrivateKey(a.Key)
		y, err2 := x509.MarshalPKCS8PrivateKey(b.Key)
		return err == nil && err2 == nil && bytes.Equal(x, y)
	}
	x, y := *a, *b
	if (x.Request == nil) != (y.Request == nil) || x.Request != nil && *x.Request != *y.Request {
		return false
	}
	if !same(x.Current, y.Current) || !same(x.Pending, y.Pending) || !same(x.Previous, y.Previous) {
		return false
	}
	return x.Lineage == y.Lineage && x.Created.Equal(y.Created) && x.Generation == y.Generation && x.Phase == y.Phase && x.Since.Equal(y.Since) &&
		x.Cause == y.Cause && x.Done == y.Done && slices.Equal(x.Absorbed, y.Absorbed)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	states := map[string]*State{}
	for _, p := range []Phase{Stable, Publish, Hold, Activate} {
		states[string(p)] = written(t, p)
	}
	plain := written(t, Stable)
	plain.Request, plain.Cause, plain.Done = nil, "", ""
	states["nothing asked for"] = plain
	alone := written(t, Activate)
	alone.Previous = nil
	states["Activate after an end"] = alone
	merged := written(t, Hold)
	merged.Previous = external(realAuthority(t, "previous", nil))
	states["three CAs"] = merged
	east := written(t, Hold)
	east.Created, east.Since = east.Created.In(time.FixedZone("east", 7200)), east.Since.In(time.FixedZone("east", 7200))
	states["another time zone"] = east

	for name, s := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := encode(t, s)
			got, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if !equal(t, got, s) {
				t.Errorf("%+v, want %+v", got, s)
			}
			if again := encode(t, got); !maps.EqualFunc(again, data, bytes.Equal) {
				t.Errorf("written again it differs:\n%s\n%s", again[KeyState], data[KeyState])
			}
			for key := range data {
				if !slices.Contains(Keys(), key) {
					t.Errorf("%s is not one of Keys", key)
				}
			}
			if want := Bundle(s.Trusted(epoch())); !bytes.Equal(data[KeyBundle], want) {
				t.Errorf("%s is %q, want %q", KeyBundle, data[KeyBundle], want)
			}
		})
	}
}

// What is not kept cannot be stolen.
func TestPreviousHasNoKey(t *testing.T) {
	t.Parallel()
	s := written(t, Activate)
	previous := realAuthority(t, "previous", nil)
	s.Previous = previous
	der, err := x509.MarshalPKCS8PrivateKey(previous.Key)
	if err != nil {
		t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: blockPrivateKey, Bytes: der})
	for key, text := range encode(t, s) {
		if bytes.Contains(text, secret) {
			t.Errorf("%s holds the key of the previous CA", key)
		}
	}
}

// describe changes the description.
func describe(t *testing.T, data map[string][]byte, change func(map[string]any)) {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(data[KeyState], &d); err != nil {
		t.Fatal(err)
	}
	change(d)
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	data[KeyState] = text
}

func TestDecodeDamaged(t *testing.T) {
	t.Parallel()
	type damage = func(t *testing.T, data map[string][]byte)
	set := func(key, text string) damage {
		return func(_ *testing.T, data map[string][]byte) { data[key] = []byte(text) }
	}
	remove := func(key string) damage { return func(_ *testing.T, data map[string][]byte) { delete(data, key) } }
	cut := func(key string) damage {
		return func(_ *testing.T, data map[string][]byte) { data[key] = data[key][:len(data[key])/2] }
	}
	enlarge := func(key string) damage {
		return func(_ *testing.T, data map[string][]byte) {
			data[key] = append(data[key], bytes.Repeat([]byte{'\n'}, largest)...)
		}
	}
	double := func(key string) damage {
		return func(_ *testing.T, data map[string][]byte) { data[key] = slices.Repeat(data[key], 2) }
	}
	copyFrom := func(to, from string) damage {
		return func(_ *testing.T, data map[string][]byte) { data[to] = data[from] }
	}
	swap := func(a, b string) damage {
		return func(_ *testing.T, data map[string][]byte) { data[a], data[b] = data[b], data[a] }
	}
	block := func(key, kind string, der []byte) damage {
		return func(_ *testing.T, data map[string][]byte) {
			data[key] = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		}
	}
	foreign := func(cert, key string) damage {
		return func(t *testing.T, data map[string][]byte) {
			other := encode(t, written(t, Stable))
			if cert != "" {
				data[cert] = other[KeyCurrentCert]
			}
			if key != "" {
				data[key] = other[KeyCurrentKey]
			}
		}
	}
	as := func(change func(*x509.Certificate)) damage {
		return func(t *testing.T, data map[string][]byte) {
			s := written(t, Hold)
			s.Current = realAuthority(t, "current", change)
			maps.Copy(data, encode(t, s))
		}
	}
	edit := func(change func(map[string]any)) damage {
		return func(t *testing.T, data map[string][]byte) { describe(t, data, change) }
	}
	both := func(all ...damage) damage {
		return func(t *testing.T, data map[string][]byte) {
			for _, d := range all {
				d(t, data)
			}
		}
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x25519, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	const (
		another     = "is not the CA that state.json describes: another program wrote it"
		notPEM      = "is not PEM, or is cut off"
		wantsCert   = "is a PEM block of another type than CERTIFICATE"
		wantsKey    = "is a PEM block of another type than PRIVATE KEY"
		several     = "has more than one PEM block"
		large       = "is larger than 65536 bytes"
		notIdentity = "state.json: lacks its version, lineage, creation time or generation"
	)
	for name, c := range map[string]struct {
		phase  Phase
		damage damage
		want   string
	}{
		"state missing":            {Hold, remove(KeyState), "state.json: is missing"},
		"state empty":              {Hold, set(KeyState, ""), "state.json: is missing"},
		"state cut off":            {Hold, cut(KeyState), "state.json: cannot be read as JSON"},
		"state too large":          {Hold, enlarge(KeyState), "state.json: " + large},
		"state of another kind":    {Hold, set(KeyState, `["x"]`), "state.json: cannot be read as JSON"},
		"state of no version":      {Hold, edit(func(d map[string]any) { delete(d, "version") }), notIdentity},
		"state at the last number": {Hold, edit(func(d map[string]any) { d["generation"] = int64(1) << 62 }), notIdentity},
		"state without phase":      {Hold, edit(func(d map[string]any) { delete(d, "phase") }), "state.json: has an unknown phase"},
		"state of no known phase":  {Hold, edit(func(d map[string]any) { d["phase"] = "Retire" }), "state.json: has an unknown phase"},
		"state without CAs":        {Hold, edit(func(d map[string]any) { delete(d, "authorities") }), "current.crt: " + another + "; pending.crt: " + another},

		"certificate missing":        {Stable, remove(KeyCurrentCert), "current.crt: is missing"},
		"certificate cut off":        {Stable, cut(KeyCurrentCert), "current.crt: " + notPEM},
		"certificate twice":          {Stable, double(KeyCurrentCert), "current.crt: " + several},
		"certificate that is a key":  {Stable, copyFrom(KeyCurrentCert, KeyCurrentKey), "current.crt: " + wantsCert},
		"certificate of no CA":       {Hold, as(func(c *x509.Certificate) { c.IsCA = false }), "current.crt: is not the certificate of a CA"},
		"certificate not for that":   {Hold, as(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), "current.crt: is not the certificate of a CA"},
		"certificate of another":     {Stable, foreign(KeyCurrentCert, ""), "current.key: is not the key of current.crt"},
		"pair of another":            {Stable, foreign(KeyCurrentCert, KeyCurrentKey), "current.crt: " + another},
		"pairs swapped":              {Hold, both(swap(KeyCurrentCert, KeyPendingCert), swap(KeyCurrentKey, KeyPendingKey)), "current.crt: " + another + "; pending.crt: " + another},
		"certificates swapped":       {Hold, swap(KeyCurrentCert, KeyPendingCert), "current.key: is not the key of current.crt; pending.key: is not the key of pending.crt"},
		"key missing":                {Stable, remove(KeyCurrentKey), "current.key: is missing"},
		"key cut off":                {Stable, cut(KeyCurrentKey), "current.key: " + notPEM},
		"key of another":             {Stable, foreign("", KeyCurrentKey), "current.key: is not the key of current.crt"},
		"key of garbage":             {Stable, block(KeyCurrentKey, blockPrivateKey, []byte("garbage")), "current.key: cannot be read"},
		"key in another format":      {Stable, block(KeyCurrentKey, "EC PRIVATE KEY", []byte("garbage")), "current.key: " + wantsKey},
		"key that cannot sign":       {Stable, block(KeyCurrentKey, blockPrivateKey, x25519), "current.key: is not a signing key"},
		"pending missing":            {Publish, remove(KeyPendingCert), "pending.crt: is missing"},
		"pending of another":         {Hold, foreign(KeyPendingCert, KeyPendingKey), "pending.crt: " + another},
		"pending key missing":        {Publish, remove(KeyPendingKey), "pending.key: is missing"},
		"pending key of the current": {Hold, copyFrom(KeyPendingKey, KeyCurrentKey), "pending.key: is not the key of pending.crt"},
		"previous missing":           {Activate, remove(KeyPreviousCert), "previous.crt: is missing"},
		"previous of another":        {Activate, copyFrom(KeyPreviousCert, KeyCurrentCert), "previous.crt: " + another},
		"all of a hold": {
			Hold, both(set(KeyState, "{"), cut(KeyCurrentKey), remove(KeyPendingCert)),
			"state.json: cannot be read as JSON; current.key: " + notPEM,
		},
		"only the bundle": {Stable, both(remove(KeyState), remove(KeyCurrentCert), remove(KeyCurrentKey)), "state.json: is missing; current.crt: is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := written(t, c.phase)
			data := encode(t, s)
			secrets := secretsOf(data)
			c.damage(t, data)
			secrets = append(secrets, secretsOf(data)...)
			got, err := Decode(data)
			damage, ok := errors.AsType[Damage](err)
			if !ok {
				t.Fatalf("%v is not a Damage", err)
			}
			if damage.Error() != c.want {
				t.Errorf("%s\nwant %s", damage, c.want)
			}
			for _, secret := range secrets {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s holds a part of a key", err)
				}
			}
			if got != nil {
				t.Errorf("%v is used", show(got))
			}
		})
	}
}

// secretsOf are pieces of the keys, as they stand there and as bytes.
func secretsOf(data map[string][]byte) []string {
	var secrets []string
	for _, key := range []string{KeyCurrentKey, KeyPendingKey} {
		for line := range strings.Lines(string(data[key])) {
			line = strings.TrimSpace(line)
			if len(line) < 16 || strings.HasPrefix(line, "--") {
				continue
			}
			secrets = append(secrets, line[:8], line[len(line)-8:])
			if raw, err := base64.StdEncoding.DecodeString(line[:len(line)/4*4]); err == nil {
				secrets = append(secrets, string(raw[:4]))
			}
		}
	}
	return secrets
}

func TestDecodeNothing(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]map[string][]byte{
		"nil": nil, "no key": {}, "blank": {KeyState: []byte(" \n"), KeyCurrentKey: {}},
		"of somebody else": {"tls.crt": []byte("x"), "tls.key": []byte("y")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s, err := Decode(data); s != nil || !errors.Is(err, ErrEmpty) {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

// A program that is rolled back leaves the state of the newer one alone.
func TestDecodeNewer(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"one more":              `{"version": 2, "lineage": "x", "generation": 1, "phase": "Stable"}`,
		"with other fields":     `{"version": 3, "lineage": {"name": "x"}, "generation": "many"}`,
		"with no damage beside": `{"version": 2}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := encode(t, written(t, Stable))
			data[KeyState] = []byte(text)
			s, err := Decode(data)
			if _, damaged := errors.AsType[Damage](err); s != nil || damaged || !errors.Is(err, ErrNewer) {
				t.Fatalf("%v, %v", s, err)
			}
			if want := "state.json: was written by a newer version of Gatehouse: use that version"; err.Error() != want {
				t.Errorf("%s, want %s", err, want)
			}
		})
	}
}

// What others put beside it is theirs.
func TestDecodePassesOver(t *testing.T) {
	t.Parallel()
	s := written(t, Stable)
	data := encode(t, s)
	data["tls.crt"], data[KeyBundle], data[KeyPendingCert], data[KeyPreviousCert] = []byte("x"), []byte("x"), []byte("x"), []byte("x")
	data[KeyCurrentCert] = append([]byte("# a remark\n"), data[KeyCurrentCert]...)
	got, err := Decode(data)
	if err != nil || !equal(t, got, s) {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, p := range []Phase{Stable, Publish, Hold, Activate} {
		data := encode(f, written(f, p))
		f.Add(data[KeyState], data[KeyCurrentCert], data[KeyCurrentKey], data[KeyPendingCert], data[KeyPendingKey], data[KeyPreviousCert])
		f.Add(data[KeyState][:40], data[KeyCurrentCert][:90], data[KeyCurrentKey], data[KeyPendingCert], []byte{}, data[KeyPreviousCert])
	}
	f.Fuzz(func(t *testing.T, state, currentCert, currentKey, pendingCert, pendingKey, previousCert []byte) {
		data := map[string][]byte{
			KeyState: state, KeyCurrentCert: currentCert, KeyCurrentKey: currentKey,
			KeyPendingCert: pendingCert, KeyPendingKey: pendingKey, KeyPreviousCert: previousCert,
		}
		s, err := Decode(data)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
			if s != nil {
				t.Errorf("%+v is used", s)
			}
			return
		}
		// What is accepted can be gone on from: written again it is the same.
		again, err := Encode(s, epoch())
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("%v of what was accepted", err)
		}
		if !equal(t, back, s) {
			t.Errorf("%+v, want %+v", back, s)
		}
		if (s.Pending != nil) != (s.Phase == Publish || s.Phase == Hold) || s.Previous != nil && s.Phase == Stable {
			t.Errorf("%s", show(s))
		}
	})
}
