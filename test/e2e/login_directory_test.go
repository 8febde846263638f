package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// directory is a slapd with people in it.
type directory struct {
	*slapd.Server
	// passwords are those of people, and of the account that searches.
	passwords map[string]string
}

const searcher = "cn=searcher," + slapd.Suffix

func personDN(name string) string { return "uid=" + name + ",ou=people," + slapd.Suffix }

func groupDN(name string) string { return "cn=" + name + ",ou=groups," + slapd.Suffix }

// newDirectory starts a slapd with these people. Jane, if she is one, is a developer; developers are engineers, who are
// staff, of whom the developers' friends think the same of each other.
func (w *world) newDirectory(t *testing.T, names ...string) *directory {
	t.Helper()
	d := &directory{passwords: map[string]string{searcher: w.secret(rand.Text())}}
	var ldif strings.Builder
	add := func(dn string, lines ...string) {
		fmt.Fprintf(&ldif, "dn: %s\n%s\n\n", dn, strings.Join(lines, "\n"))
	}
	add(slapd.Suffix, "objectClass: dcObject", "objectClass: organization", "o: Example", "dc: example")
	add(searcher, "objectClass: organizationalRole", "objectClass: simpleSecurityObject", "cn: searcher", "userPassword: "+d.passwords[searcher])
	add("ou=people,"+slapd.Suffix, "objectClass: organizationalUnit", "ou: people")
	add("ou=groups,"+slapd.Suffix, "objectClass: organizationalUnit", "ou: groups")
	for _, name := range names {
		// People are told to use special characters.
		d.passwords[name] = w.secret("pass wörd €\"'\\" + rand.Text())
		add(personDN(name), "objectClass: inetOrgPerson", "uid: "+name, "cn: "+name, "sn: "+name, "title: The "+name,
			"userPassword:: "+base64.StdEncoding.EncodeToString([]byte(d.passwords[name])))
	}
	if slices.Contains(names, "jane") {
		group := func(name string, members ...string) {
			lines := []string{"objectClass: groupOfNames", "cn: " + name}
			for _, member := range members {
				lines = append(lines, "member: "+member)
			}
			add(groupDN(name), lines...)
		}
		group("dev", personDN("jane"))
		group("eng", groupDN("dev"))
		group("staff", groupDN("eng"), groupDN("friends"))
		group("friends", groupDN("staff"))
		group("others", personDN("bob"))
	}
	d.Server = slapd.New(t, slapd.Options{LDIF: ldif.String(), NoAnonymous: true})
	w.secret(d.AdminPassword)
	return d
}

// configuration is ours with a directory and a key. Tokens are good for as short as can be.
func (d *directory) configuration(t *testing.T, s *site) v1alpha1.AuthenticationConfiguration {
	t.Helper()
	configured := trustingLDAP(d.Server, "ldap")
	configured.BindDN, configured.BindPasswordFile = searcher, s.writeSecret(t, "searcher", d.passwords[searcher])
	return v1alpha1.AuthenticationConfiguration{
		Directories: []v1alpha1.Directory{configured},
		Login: &v1alpha1.LoginConfiguration{
			Keys: []v1alpha1.LoginKey{s.loginKey(t, "first")}, TokenTTL: &metav1.Duration{Duration: time.Minute},
		},
	}
}

// with are somebody's name and password, in a request.
func (d *directory) with(name string) map[string]string {
	return map[string]string{"username": name, "password": d.passwords[name]}
}

// accepted wants a login to have led to a token, and returns it.
func (s session) accepted(t *testing.T) string {
	t.Helper()
	if s.code != http.StatusOK || s.Token == "" {
		t.Fatalf("the answer is %d, reason %q, message %q, want a token", s.code, s.Reason, s.Message)
	}
	return s.Token
}

// rejected wants a login to have been refused in this way.
func (s session) rejected(t *testing.T, code int, reason string) {
	t.Helper()
	if s.code != code || s.Reason != reason || s.Message == "" || s.Token != "" {
		t.Errorf("the answer is %d, reason %q, message %q, token %t; want %d, %q and a message", s.code, s.Reason, s.Message, s.Token != "", code, reason)
	}
}

// People log in with the passwords of their directory, and are who the directory says they are.
func (p *place) testDirectory(t *testing.T) {
	s, d := p.site, p.directory

	t.Run("token", func(t *testing.T) {
		t.Parallel()
		s := s.fromNewAddress(t)
		session := s.login(t, d.with("jane"))
		token := session.accepted(t)
		if left := time.Until(session.ExpiresAt); left > time.Minute || left < 50*time.Second {
			t.Errorf("the token is good for %s, want a minute", left)
		}
		if left := time.Until(session.SessionEnds); left > 10*time.Hour || left < 9*time.Hour {
			t.Errorf("the session lasts %s, want ten hours", left)
		}
		want := authenticationv1.UserInfo{
			Username: "ldap:jane", UID: session.User.UID, Groups: []string{"ldap:dev", "ldap:eng", "ldap:friends", "ldap:staff", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"example.org/title": {"The jane"}},
		}
		if want.UID == "" {
			t.Errorf("no uid in %+v", session.User)
		}
		check(t, p.api, token, want)
		// Damaged in any part of it, it is worth nothing.
		for _, i := range []int{len("gatehouse-login_") + 3, strings.LastIndexByte(token, '.') - 3, strings.LastIndexByte(token, '.') + 3, len(token) - 4} {
			damaged := token[:i] + string(token[i]^1) + token[i+1:]
			check(t, p.api, damaged, authenticationv1.UserInfo{})
			// With another key id it may be of a key that is not known here yet.
			if answer := s.explain(t, damaged); answer.Outcome != "no" && answer.Reason != "unknown-key" {
				t.Errorf("a token with another character at %d: got %+v, want a no", i, answer)
			}
		}
		answer := s.explain(t, token)
		if answer.Outcome != "yes" || answer.Backend != "login-token" || answer.Source != "ldap" || answer.TokenID == "" || answer.User.Username != "ldap:jane" {
			t.Errorf("got %+v", answer)
		}
		// However the name was typed.
		for _, typed := range []string{"JANE", "Jane"} {
			request := d.with("jane")
			request["username"] = typed
			if got := s.login(t, request); got.accepted(t) == "" || got.User.Username != "ldap:jane" || got.User.UID != want.UID {
				t.Errorf("%q is %+v", typed, got.User)
			}
		}
	})

	t.Run("renewal asks for the groups again", func(t *testing.T) {
		t.Parallel()
		s := s.fromNewAddress(t)
		first := s.login(t, d.with("mary"))
		if len(first.User.Groups) != 0 {
			t.Errorf("mary is in %q, want no group", first.User.Groups)
		}
		change := ldap.NewModifyRequest(groupDN("others"), nil)
		change.Add("member", []string{personDN("mary")})
		must(t, d.Admin().Modify(change))
		second := s.login(t, map[string]string{"token": first.accepted(t)})
		second.accepted(t)
		if !slices.Equal(second.User.Groups, []string{"ldap:others"}) {
			t.Errorf("renewed, mary is in %q", second.User.Groups)
		}
		if !second.SessionEnds.Equal(first.SessionEnds) {
			t.Errorf("the renewed session ends at %s, the first at %s", second.SessionEnds, first.SessionEnds)
		}
		change = ldap.NewModifyRequest(groupDN("others"), nil)
		change.Delete("member", []string{personDN("mary")})
		must(t, d.Admin().Modify(change))
		third := s.login(t, map[string]string{"token": second.accepted(t)})
		third.accepted(t)
		if len(third.User.Groups) != 0 {
			t.Errorf("renewed again, mary is in %q", third.User.Groups)
		}
		// A token says what was true when it was issued.
		if got := s.review(t, second.Token); !slices.Equal(got.User.Groups, []string{"ldap:others"}) {
			t.Errorf("the second token gives %q", got.User.Groups)
		}
	})

	t.Run("wrong", func(t *testing.T) {
		t.Parallel()
		s := s.fromNewAddress(t)
		password := d.passwords["victim"]
		for _, test := range []struct {
			name, username, password string
			code                     int
			reason                   string
		}{
			{"password", "victim", password + "x", http.StatusUnauthorized, "credentials"},
			{"no password: slapd would call that an anonymous bind", "victim", "", http.StatusBadRequest, "input"},
			{"nobody", "nobody", password, http.StatusUnauthorized, "credentials"},
			{"another filter", "victim)(objectClass=*", password, http.StatusUnauthorized, "credentials"},
			{"a DN", personDN("victim"), password, http.StatusUnauthorized, "credentials"},
			{"the searching account", searcher, d.passwords[searcher], http.StatusUnauthorized, "credentials"},
		} {
			t.Run(test.name, func(t *testing.T) {
				s := s.fromNewAddress(t)
				s.login(t, map[string]string{"username": test.username, "password": test.password}).rejected(t, test.code, test.reason)
			})
		}
		s.login(t, d.with("victim")).accepted(t)
	})

	t.Run("guessing", func(t *testing.T) {
		t.Parallel()
		guesser, eve := s.fromNewAddress(t), s.fromNewAddress(t)
		guesses := 0
		for guesses < 10 {
			answer := guesser.login(t, map[string]string{"username": "eve", "password": rand.Text()})
			if answer.Reason == "slowed" {
				answer.rejected(t, http.StatusTooManyRequests, "slowed")
				if answer.RetryAfterSeconds <= 0 {
					t.Errorf("got %+v, want when to try again", answer)
				}
				break
			}
			answer.rejected(t, http.StatusUnauthorized, "credentials")
			guesses++
		}
		t.Logf("slowed after %d guesses", guesses)
		if guesses > 5 {
			t.Errorf("%d guesses in a row", guesses)
		}
		// The right one comes too soon as well, or waiting would cost nothing.
		guesser.login(t, d.with("eve")).rejected(t, http.StatusTooManyRequests, "slowed")
		eve.login(t, d.with("eve")).accepted(t)
	})
}

// Who is logged in stays so while the directory is away, and who is not is told that it is not them.
func TestDirectoryIsAway(t *testing.T) {
	t.Parallel()
	s := prepareSite(t, "away")
	d := s.newDirectory(t, "jane", "bob")
	configuration := d.configuration(t, s)
	configuration.Directories[0].Timeout = &metav1.Duration{Duration: time.Second}
	s.writeDocument(t, "configuration.yaml", gatehouseDocument(configuration))
	s.start(t)
	token := s.login(t, d.with("jane")).accepted(t)

	// fails wants a login to fail because of the directory, and those who are logged in to stay so meanwhile.
	fails := func(t *testing.T) {
		t.Helper()
		answered := make(chan error, 1)
		go func() {
			answer, err := s.tryLogin(t, d.with("bob"))
			if err == nil && (answer.code != http.StatusServiceUnavailable || answer.Reason != "directory" || answer.Message == "") {
				err = fmt.Errorf("got %+v, want 503 and a message", answer)
			}
			answered <- err
		}()
		for {
			must(t, isAuthenticated(s.review(t, token)))
			select {
			case err := <-answered:
				must(t, err)
				return
			default:
			}
		}
	}
	d.Pause()
	fails(t)
	s.login(t, map[string]string{"token": token}).rejected(t, http.StatusServiceUnavailable, "directory")
	d.Resume()
	d.Stop()
	fails(t)
	must(t, isAuthenticated(s.review(t, token)))
	d.Start()
	support.Eventually(t, "a login after the directory is back", func() error {
		answer := s.fromNewAddress(t).login(t, d.with("bob"))
		if answer.code != http.StatusOK {
			return errors.New(answer.Message)
		}
		return nil
	})
	s.login(t, map[string]string{"token": token}).accepted(t)
}
