package login_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/text/unicode/norm"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// people is a directory in memory that compares names as LDAP does: without case,
// and without regard to compatibility forms of characters.
type people struct {
	accounts map[string]*authn.Account
	// hashing is how long it takes to compare a password with that of jane.
	hashing time.Duration
	// binds counts the passwords that were compared with that of jane.
	binds atomic.Int64
}

func ldapName(name string) string { return strings.ToLower(norm.NFKC.String(name)) }

// add adds an account with the names that find it.
func (p *people) add(names ...string) {
	account := &authn.Account{Key: "entryuuid:" + names[0], DN: "uid=" + names[0], User: authenticationv1.UserInfo{Username: names[0]}}
	if p.accounts == nil {
		p.accounts = map[string]*authn.Account{}
	}
	for _, name := range names {
		p.accounts[name] = account
	}
}

func (p *people) Find(_ context.Context, name string) (*authn.Account, error) {
	time.Sleep(time.Millisecond)
	if account := p.accounts[ldapName(name)]; account != nil {
		return account, nil
	}
	return nil, authn.ErrNoAccount
}

func (p *people) Verify(_ context.Context, account *authn.Account, typed string) error {
	time.Sleep(time.Millisecond)
	if account == nil {
		return authn.ErrWrongPassword
	}
	if account.User.Username == "jane" {
		p.binds.Add(1)
		time.Sleep(p.hashing)
	}
	if typed != password {
		return authn.ErrWrongPassword
	}
	return nil
}

func (p *people) Groups(context.Context, *authn.Account) ([]string, error) { return nil, nil }

// serve is /login with the directory.
func (p *people) serve(t *testing.T) http.Handler {
	t.Helper()
	set, err := authn.Compile(authn.Spec{
		Directories: []authn.NamedDirectory{{Field: "directories[0]", Config: &v1alpha1.Directory{Name: "corp"}, Directory: p}},
		Configuration: &authn.Configuration{Source: "auth.yaml", AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{
			Login: &v1alpha1.LoginConfiguration{Keys: []v1alpha1.LoginKey{{Name: "first", File: "first.key"}}},
		}},
		LoginKeys: []authn.LoginKey{{Name: "first", Secret: bytes.Repeat([]byte{1}, 32)}},
		Random:    rand.NewChaCha8([32]byte{}), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return login.Handler(login.HandlerOptions{Current: func() *authn.Set { return set }, Now: time.Now})
}

// attempt is a call of /login.
type attempt struct {
	client, directory, name, password string
	// after is the time since the call before it, late how long its body takes, and
	// hangUp when its caller leaves, if it is positive.
	after, late, hangUp time.Duration
	// secret is a call that the observer does not see: of somebody with a password.
	secret bool
}

// observe makes the calls, and returns what their callers see: when each was answered,
// and with what.
func observe(t *testing.T, p *people, attempts []attempt) []string {
	t.Helper()
	handler := p.serve(t)
	seen := make([]string, len(attempts))
	start := time.Now()
	var calls sync.WaitGroup
	for i, a := range attempts {
		time.Sleep(a.after)
		body := fmt.Sprintf(`{"directory":%q,"username":%q,"password":%q}`, a.directory, a.name, a.password)
		r := request(t, login.Path, body)
		r.RemoteAddr = a.client + ":4711"
		r.Body = io.NopCloser(io.MultiReader(lateReader(a.late), r.Body))
		ctx, leave := context.WithCancel(t.Context())
		if a.hangUp > 0 {
			time.AfterFunc(a.hangUp, leave)
		}
		calls.Go(func() {
			defer leave()
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, r.WithContext(ctx))
			seen[i] = fmt.Sprint(time.Since(start), " ", recorder.Code, " ", recorder.Header(), " ", recorder.Body)
		})
	}
	calls.Wait()
	var observed []string
	for i, a := range attempts {
		if !a.secret {
			observed = append(observed, seen[i])
		}
	}
	return observed
}

// guesses are random attempts with wrong passwords by the names of an account that
// there may be and of one that there is not, and logins that others see.
func guesses(random *rand.Rand) []attempt {
	names := []string{
		"jane", "JANE", "Jane ", "ｊａｎｅ", "jane@example.com", "JANE@Example.Com", "ｊane@example.com",
		"joe", "JOE", "joe@example.com", "ｊｏｅ",
	}
	directories := []string{"", "corp", "none"}
	attempts := []attempt{{client: "192.0.2.1", name: "bob", password: password, secret: true}}
	for range 120 {
		a := attempt{
			client: fmt.Sprint("192.0.2.", 1+random.IntN(4)), directory: directories[random.IntN(20)/9],
			name: names[random.IntN(len(names))], password: "wrong",
			// No two things happen at the same time, in whose order there is chance.
			after: time.Duration(random.Int64N(int64(3 * time.Second))),
		}
		switch random.IntN(10) {
		case 0:
			a.after *= 200
		case 1:
			a.late = time.Duration(random.Int64N(int64(300 * time.Millisecond)))
		case 2:
			a.hangUp = time.Duration(1 + random.Int64N(int64(300*time.Millisecond)))
		case 3, 4, 5:
			a.after /= 100
		case 6:
			a.name, a.password, a.secret = "bob", password, true
		}
		attempts = append(attempts, a)
	}
	return attempts
}

// TestAnswersDoNotTellWhoThereIs makes the same calls of servers with and without an
// account: without the password nobody sees a difference, in any answer or in the
// time of any.
func TestAnswersDoNotTellWhoThereIs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			attempts := guesses(rand.New(rand.NewPCG(seed, 0)))
			see := func(p *people) (seen []string) {
				p.add("bob")
				synctest.Test(t, func(t *testing.T) { seen = observe(t, p, attempts) })
				return seen
			}
			without := see(&people{})
			there := &people{hashing: 90 * time.Millisecond}
			there.add("jane", "jane@example.com")
			with := see(there)
			if there.binds.Load() == 0 {
				t.Error("no password was compared with that of the account")
			}
			slowed := 0
			for i := range without {
				if strings.Contains(without[i], login.ReasonSlowed) {
					slowed++
				}
				if with[i] != without[i] {
					t.Fatalf("with the account call %d is seen as\n%s\nand without it as\n%s", i, with[i], without[i])
				}
			}
			if slowed == 0 {
				t.Error("no call has to wait")
			}
		})
	}
}
