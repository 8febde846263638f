package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/version"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	// usageManager is who the API server notes as the author of status.lastUsed.
	usageManager = "gatehouse-tokens"
	// usageGrain is how far status.lastUsed may be behind.
	usageGrain   = time.Hour
	grainSeconds = int64(usageGrain / time.Second)
	// usageQPS and usageBurst bound what all uses cost the API server, in requests a
	// second and at one time.
	usageQPS, usageBurst = 5, 5
	// usageTimeout bounds one request.
	usageTimeout = 10 * time.Second
	// usageRetry and usageForbidden are how long no use of a token is noted after one
	// could not be, and after one that somebody has to allow first.
	usageRetry, usageForbidden = time.Minute, 10 * time.Minute
)

// ClusterUsage notes in the status of access tokens of a cluster when they were
// last used, to the hour. Before it writes it looks whether another replica has
// noted a use of the hour. What cannot be written is lost, and the next use of the
// token is noted a while later.
//
// It knows the tokens that Know was told and no others, and each waits to be noted
// once, so that nobody who sends tokens can make it grow. It is safe for concurrent
// use, but for Know, whose calls come one after the other.
type ClusterUsage struct {
	client dynamic.NamespaceableResourceInterface
	log    *slog.Logger
	// failure is what was logged last.
	failure apierr.Class

	// known has what there is to know of each token. The map is never written to; a
	// new one takes its place, with the same values in it.
	known atomic.Pointer[map[string]*clusterUse]

	wake    chan struct{}
	mu      sync.Mutex
	waiting []string
}

// clusterUse is what is known of the use of a token.
type clusterUse struct {
	uid types.UID
	// next is the Unix second before which no use is noted, which is an hour away at
	// most, and at that of the use that waits to be.
	next, at atomic.Int64
	waits    atomic.Bool
}

// NewClusterUsage returns a ClusterUsage with a client of its own, so that it never
// keeps anything else waiting. It asks nothing yet: an error is about the
// configuration.
func NewClusterUsage(access *rest.Config, log *slog.Logger) (*ClusterUsage, error) {
	access = rest.CopyConfig(access)
	access.QPS, access.Burst, access.RateLimiter = usageQPS, usageBurst, nil
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for %s: %w", access.Host, err)
	}
	return newClusterUsage(client, log), nil
}

func newClusterUsage(client dynamic.Interface, log *slog.Logger) *ClusterUsage {
	u := &ClusterUsage{client: client.Resource(v1alpha1.GroupVersion.WithResource(tokenResource)), log: log, wake: make(chan struct{}, 1)}
	u.known.Store(&map[string]*clusterUse{})
	return u
}

// Know makes these the tokens whose use is noted, as far as they are of the
// cluster. Others are forgotten.
func (u *ClusterUsage) Know(tokens []authn.Token) {
	before := *u.known.Load()
	now := map[string]*clusterUse{}
	for i := range tokens {
		token := &tokens[i]
		if token.Source != config.ClusterSource || token.UID == "" {
			continue
		}
		use := before[token.Name]
		if use == nil || use.uid != token.UID {
			// Copies, so that nothing holds on to the documents.
			use = &clusterUse{uid: types.UID(strings.Clone(string(token.UID)))}
		}
		now[strings.Clone(token.Name)] = use
	}
	u.known.Store(&now)
}

// Note notes that a token was used. It is fast, waits for nobody, and does nothing
// for an id that is not known.
func (u *ClusterUsage) Note(id string, at time.Time) {
	use := (*u.known.Load())[id]
	if use == nil || use.waits.Load() {
		return
	}
	// Longer than that is by a clock that was ahead.
	if pause := use.next.Load() - at.Unix(); pause > 0 && pause <= grainSeconds || !use.waits.CompareAndSwap(false, true) {
		return
	}
	use.at.Store(at.Unix())
	u.mu.Lock()
	u.waiting = append(u.waiting, strings.Clone(id))
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default: // it is awake
	}
}

// Run writes what was noted, one token after the other, until ctx is done. It is
// called once.
func (u *ClusterUsage) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.wake:
		}
		u.mu.Lock()
		waiting := u.waiting
		u.waiting = nil
		u.mu.Unlock()
		for _, id := range waiting {
			if ctx.Err() != nil {
				return
			}
			if use := (*u.known.Load())[id]; use != nil {
				u.write(ctx, id, use)
			}
		}
	}
}

// write writes the use that waits, unless another of the hour or a later one is there.
// One that is said to be yet to come is by a clock that was ahead.
func (u *ClusterUsage) write(ctx context.Context, id string, use *clusterUse) {
	defer use.waits.Store(false)
	now := time.Now()
	at := time.Unix(min(use.at.Load(), now.Unix()), 0)
	last, err := u.last(ctx, id, use.uid)
	if err == nil && (!at.Before(last.Add(usageGrain)) || last.After(now.Add(usageGrain))) {
		last, err = at, u.patch(ctx, id, use.uid, at)
	}
	if ctx.Err() != nil {
		return
	}
	class := apierr.Classify(err)
	// A token that was deleted or replaced in between is no failure.
	if gone := errors.Is(err, errGone) || class == apierr.NotFound || class == apierr.Conflict; !gone {
		u.report(class.Coarse(), err)
	}
	switch {
	case err == nil:
		use.next.Store(min(last.Unix(), now.Unix()) + grainSeconds)
	case class.IsDenied(), class == apierr.Unserved:
		use.next.Store(time.Now().Add(usageForbidden).Unix())
	default:
		use.next.Store(time.Now().Add(usageRetry).Unix())
	}
}

// last returns when the token was last used by what its status says. What the API server
// has in memory is recent enough.
func (u *ClusterUsage) last(ctx context.Context, id string, uid types.UID) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	found, err := u.client.Get(ctx, id, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return time.Time{}, err
	}
	if found.GetUID() != uid {
		return time.Time{}, errGone
	}
	if last := statusOf(found).LastUsed; last != nil {
		return last.Time, nil
	}
	return time.Time{}, nil
}

// patch writes when the token was used into its status, if it is still this token.
func (u *ClusterUsage) patch(ctx context.Context, id string, uid types.UID, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"lastUsed": metav1.NewTime(at)},
	})
	if err != nil {
		return err
	}
	_, err = u.client.Patch(ctx, id, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: usageManager}, "status")
	return err
}

var errGone = errors.New("the token is another one")

// report logs a failure once for as long as it lasts, and that it is over.
func (u *ClusterUsage) report(class apierr.Class, err error) {
	before := u.failure
	u.failure = class
	if class == before {
		return
	}
	if class == apierr.None {
		u.log.Info("use of access tokens", "recovered", "status.lastUsed can be written again")
		return
	}
	hint := "Gatehouse tries again; nothing else depends on it"
	switch class { //nolint:exhaustive // the others need nothing but time
	case apierr.Forbidden:
		hint = apierr.GrantHint("the ClusterRole gatehouse-resources", "get", "accesstokens and patch of accesstokens/status in "+v1alpha1.GroupVersion.Group+"; nothing else depends on it")
	case apierr.Unserved:
		hint = "apply the CRDs: " + version.Remedy
	default:
	}
	u.log.Warn("use of access tokens", "error", "cannot write when they were last used: "+singleLineError(err), "hint", hint)
}
