package active

import "time"

// releaseDelay is the time from an activation to the release of the program's pages. Listeners,
// certificates and watches start after the first activation: what only their start needs is
// released with it (measured: 4 MiB).
const releaseDelay = time.Second
