package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/page"
	"unbloat/internal/measure/protocol/iperf3"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/internal/serve"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// mark is in all that attackers say, so that it is known again.
const mark = "0wned"

// attackersPlace is the directory of their own files.
const attackersPlace = "/tmp/attackers"

// harm is what terminals, shells, pages, formats and logs are attacked with.
const harm = "\x1b]0;" + mark + "\a\x1b[2J\u202e\n" + mark + ": Applied to wan\r$(touch /tmp/" + mark + ")`touch /tmp/" + mark + "`;touch /tmp/" + mark +
	"|../../../tmp/" + mark + "<script>" + mark + "()</script>'\"%n%!s{{.}}\x00"

// A stranger does one kind of harm.
type stranger struct {
	what  string
	every time.Duration
	keeps int // of the connections that an attack leaves open, the newest
	does  func(*attacker)
}

// An attacker is a stranger at work.
type attacker struct {
	*attacked
	*rand.Rand
	ctx  context.Context
	most int
	open []io.Closer
}

// attack sets all strangers to work until ctx ends.
func (h *attacked) attack(ctx context.Context, all *sync.WaitGroup) {
	if err := os.Mkdir(attackersPlace, 0o755); err != nil {
		h.Fatal(err)
	}
	for i, s := range strangers() {
		n := &atomic.Int64{}
		h.attacks[s.what] = n
		all.Go(func() {
			a := &attacker{attacked: h, Rand: rand.New(rand.NewPCG(h.seed, uint64(i))), ctx: ctx, most: s.keeps}
			defer a.keep() // closes all
			paced(ctx, s.every, func() { s.does(a); n.Add(1) })
			a.most = 0
		})
	}
}

// keep leaves connections open, and closes the oldest when there are too many.
func (a *attacker) keep(c ...io.Closer) {
	a.open = append(a.open, c...)
	for len(a.open) > a.most {
		a.open[0].Close()
		a.open = a.open[1:]
	}
}

// lan is one of the addresses from which the router is attacked, public one of those from
// which the server is.
func (a *attacker) lan() string    { return fmt.Sprintf("192.168.77.%d", 101+a.IntN(8)) }
func (a *attacker) public() string { return fmt.Sprintf("100.64.0.%d", 1+a.IntN(8)) }

// nowhere is a connection for which there was no place: it is closed already.
func nowhere() net.Conn {
	c, _ := net.Pipe()
	c.Close()
	return c
}

// dial connects from an address, with little room for what is not read. Nothing that is
// said there waits for longer than a second.
func (a *attacker) dial(network, from, to string) net.Conn {
	d := net.Dialer{Timeout: time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	switch network {
	case "tcp":
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	case "udp":
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.DialContext(a.ctx, network, to)
	if err != nil {
		return nowhere()
	}
	_ = c.SetDeadline(time.Now().Add(time.Second))
	return c
}

// says sends something and takes a little of the answer, if it comes soon.
func (a *attacker) says(c net.Conn, text string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	_, _ = io.WriteString(c, text)
	_, _ = io.ReadAtLeast(c, make([]byte, 4096), 1)
}

// one of several.
func one[T any](a *attacker, of ...T) T { return of[a.IntN(len(of))] }

// mutated is a text that is mostly damaged somewhere.
func (a *attacker) mutated(text string) string {
	b := []byte(text)
	for range a.IntN(4) {
		if len(b) == 0 {
			break
		}
		switch at := a.IntN(len(b)); a.IntN(4) {
		case 0:
			b[at] = byte(a.Uint32())
		case 1:
			b = b[:at]
		case 2:
			b = append(b[:at:at], b[min(len(b), at+a.IntN(20)):]...)
		case 3:
			b = append(append(b[:at:at], b[max(0, at-a.IntN(50)):at]...), b[at:]...)
		}
	}
	return string(b)
}

// quoted is harm as a JSON string.
func quoted() string {
	b, _ := json.Marshal(harm)
	return string(b)
}

// request is one of HTTP/1.1.
func request(method, path, host string, header string, body string) string {
	length := ""
	if body != "" {
		length = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + header + length + "\r\n" + body
}

// strangers are all of them. Together they leave half of two processors idle: that
// somebody else has taken those is not what is tested.
func strangers() []stranger {
	const ms = time.Millisecond
	return []stranger{
		{"silent clients of the socket", 50 * ms, 60, (*attacker).silentAtSocket},
		{"clients of the socket that do not read", 500 * ms, 8, (*attacker).unreadAtSocket},
		{"requests at the socket that are none", 40 * ms, 0, (*attacker).rubbishAtSocket},
		{"runs that are stopped as they begin", 400 * ms, 0, (*attacker).races},
		{"silent browsers", 20 * ms, 250, (*attacker).silentBrowser},
		{"browsers that do not read", 50 * ms, 128, (*attacker).unreadBrowser},
		{"wrong passwords", 100 * ms, 0, (*attacker).guesses},
		{"forgeries with the owner's cookie", 50 * ms, 0, (*attacker).forges},
		{"requests at the page that are none", 40 * ms, 0, (*attacker).rubbishAtPage},
		{"viewers whose streams nobody reads", time.Second, 40, (*attacker).views},
		{"silent collectors of metrics", 50 * ms, 60, (*attacker).silentCollector},
		{"names in leases", 500 * ms, 0, (*attacker).leases},
		{"names in plans", 2 * time.Second, 0, (*attacker).plans},
		{"silent clients of the server", 30 * ms, 300, (*attacker).silentAtServer},
		{"rubbish in the server's protocols", 30 * ms, 20, (*attacker).rubbishAtServer},
		{"data connections from elsewhere", 200 * ms, 20, (*attacker).elsewhere},
		{"bodies over HTTP/2 that nobody reads", 300 * ms, 20, (*attacker).bodies},
		{"answers over HTTP/2 that nobody takes", 300 * ms, 20, (*attacker).untaken},
		{"requests at the server's web port that are none", 40 * ms, 0, (*attacker).rubbishAtWeb},
		{"WebSockets from two addresses", 300 * ms, 6, (*attacker).webSockets},
		{"datagrams", 30 * ms, 0, (*attacker).datagrams},
	}
}

func (a *attacker) socket() net.Conn { return a.dial("unix", "", daemon.Socket(a.state)) }

func (a *attacker) silentAtSocket() {
	c := a.socket()
	_, _ = io.WriteString(c, one(a, "", "\n\n", `{"id":`, `{"id":1,"method":"status"}`))
	a.keep(c)
}

func (a *attacker) unreadAtSocket() {
	c := a.socket()
	_, _ = io.WriteString(c, strings.Repeat(`{"id":1,"method":"status"}`+"\n", 500))
	a.keep(c)
}

func (a *attacker) rubbishAtSocket() {
	name := quoted()
	a.says(a.socket(), a.mutated(one(a,
		`{"id":1,"method":`+name+`}`,
		`{"id":`+name+`,"method":"status","wan":`+name+`,"router":`+name+`}`,
		`{"id":1,"method":"why","wan":"wan","params":{"flow":`+name+`}}`,
		`{"id":1,"method":"history","params":{"wan":`+name+`,"seconds":1e300}}`,
		`{"id":1,"method":"turn","params":{"for":`+name+`}}`,
		`{"id":1,"method":"run","params":{"run":`+name+`}}`,
		`{"id":1,"method":"apply","params":{"plan":`+strings.ReplaceAll(strings.ReplaceAll(a.plan, "\n", " "), `"wan"`, name)+`}}`,
		`{"id":1,"method":"schedule","params":[`+name+`]}`,
		`{"id":1,"method":"events","params":{"after":-1}}`,
		`{"id":`+strings.Repeat("[", 50_000),
		`{"method":"status","params":`+strings.Repeat(`{"a":`, 20_000),
		strings.Repeat("x", daemon.MostLine+10_000),
		"\xff\xfe\x00"+harm,
	))+"\n")
}

// races has a test begin and end at the same time, in every order.
func (a *attacker) races() {
	begin, stop := a.socket(), a.socket()
	var both sync.WaitGroup
	both.Go(func() { a.says(begin, `{"id":1,"method":"test","wan":"wan","params":{}}`+"\n") })
	for range 1 + a.IntN(3) {
		_, _ = io.WriteString(stop, `{"id":1,"method":"run","params":{"stop":true}}`+"\n")
	}
	if a.IntN(2) == 0 {
		begin.Close()
	}
	a.says(stop, "")
	both.Wait()
}

const pageAt = routerAddress + ":7690"

func (a *attacker) silentBrowser() {
	c := a.dial("tcp", a.lan(), pageAt)
	_, _ = io.WriteString(c, one(a, "", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\nCookie: ", "GET / HTTP/1.1\r\nHost: "+routerAddress+"\r\n\r\nGET / H",
		"POST /api/line HTTP/1.1\r\nHost: "+routerAddress+"\r\nContent-Length: 50\r\n\r\n{"))
	a.keep(c)
}

func (a *attacker) unreadBrowser() {
	c := a.dial("tcp", fmt.Sprintf("192.168.77.%d", 101+a.IntN(4)), pageAt)
	_, _ = io.WriteString(c, strings.Repeat(request("GET", "/", routerAddress, "", ""), 20))
	a.keep(c)
}

const asJSON = "Content-Type: application/json\r\n"

func (a *attacker) guesses() {
	word := one(a, fmt.Sprintf("%q", fmt.Sprint("guess", a.Uint64())), `"`+strings.Repeat("x", page.MostPassword+1)+`"`, quoted())
	path, body := "/api/login", `{"password":`+word+`}`
	if a.IntN(3) == 0 {
		path, body = "/api/first", `{"token":`+word+`,"password":"`+mark+mark+`"}`
	}
	a.says(a.dial("tcp", a.lan(), pageAt), request("POST", path, routerAddress, asJSON, body))
}

func (a *attacker) forges() {
	path := one(a, "/api/line", "/api/revert", "/api/run", "/api/password", "/api/schedule", "/api/mend", "/api/logout")
	header := asJSON + "Cookie: " + a.cookie + "\r\n" + one(a,
		"Origin: http://evil.example\r\n", "Origin: null\r\n", "Origin: http://"+pageAt+".evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n",
		"X-CSRF: "+strings.Repeat("A", 32)+"\r\n", "")
	body := one(a, `{"wan":"wan","on":false}`, `{"wan":"wan","down_bps":1000000}`, `{"now":"`+password+`","role":"admin","new":"`+mark+mark+`"}`, `{"wan":"wan","kind":"tune"}`, `{}`)
	host := one(a, pageAt, routerAddress, "evil.example:7690")
	a.says(a.dial("tcp", a.lan(), pageAt), request("POST", path, host, header, body))
}

func (a *attacker) rubbishAtPage() {
	a.says(a.dial("tcp", a.lan(), pageAt), a.mutated(one(a,
		request("GET", "/"+url.PathEscape(harm), routerAddress, "", ""),
		request("GET", "/../../../../etc/passwd", routerAddress, "", ""),
		request("GET", "/api/machine?address="+url.QueryEscape(harm), routerAddress, "Cookie: "+a.cookie+"\r\n", ""),
		request("GET", "/api/line?range=1h&wan="+url.QueryEscape(harm), routerAddress, "Cookie: "+a.cookie+"\r\n", ""),
		request("GET", "/", routerAddress, "X: "+harm+"\r\n", ""),
		request("GET", "/", routerAddress, "X: "+strings.Repeat("x", 10_000)+"\r\n", ""),
		request("GET", "/", harm, "", ""),
		request("POST", "/api/login", routerAddress, asJSON, strings.Repeat("[", 60_000)),
		request("POST", "/api/login", routerAddress, asJSON, strings.Repeat("x", 100_000)),
		"POST /api/login HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"+strings.Repeat("x", 100_000),
		"POST /api/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", harm,
	)))
}

// views lets in those who may look, whose streams nobody reads.
func (a *attacker) views() {
	at, err := daemon.Dial(a.ctx, daemon.Socket(a.state))
	if err != nil {
		return
	}
	defer at.Close()
	ctx, cancel := context.WithTimeout(a.ctx, time.Second)
	defer cancel()
	var page daemon.Page
	if at.Call(ctx, daemon.MethodPage, "", "", daemon.PageParams{Enter: daemon.EnterViewer}, &page) != nil {
		return
	}
	from := a.lan()
	viewer := clientFrom(from)
	viewer.Timeout = time.Second
	r, err := viewer.Post("http://"+pageAt+"/api/enter", "application/json", strings.NewReader(fmt.Sprintf(`{"ticket":%q}`, page.Ticket)))
	if err != nil {
		return
	}
	r.Body.Close()
	for _, cookie := range r.Cookies() {
		c := a.dial("tcp", from, pageAt)
		_, _ = io.WriteString(c, request("GET", "/api/stream", routerAddress, "Cookie: "+cookie.Name+"="+cookie.Value+"\r\n", ""))
		a.keep(c)
	}
}

func (a *attacker) silentCollector() {
	c := a.dial("tcp", a.lan(), routerAddress+":9836")
	get := request("GET", "/metrics", routerAddress, "", "")
	_, _ = io.WriteString(c, one(a, "", "GET /metr", strings.Repeat(get, 30), a.mutated(get), "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 20_000)))
	a.keep(c)
}

// leases has machines of the home call themselves what they like, and somebody who may make
// files in /tmp be in the way of the file.
func (a *attacker) leases() {
	const file = "/tmp/dhcp.leases"
	next := filepath.Join(attackersPlace, "leases")
	_ = os.Remove(next)
	switch a.IntN(4) {
	case 0:
		_ = syscall.Mkfifo(next, 0o666)
	case 1:
		_ = os.Symlink("/dev/zero", next)
	default:
		var text strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&text, "0 02:00:00:00:00:%02x 192.168.77.%d %s *\n", i%256, i%256, strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(a.mutated(harm)))
		}
		_ = os.WriteFile(next, []byte(text.String()), 0o644)
	}
	_ = os.Rename(next, file)
}

// plans has the owner apply a plan file, and look, that somebody else has made.
func (a *attacker) plans() {
	name := quoted()
	file := filepath.Join(attackersPlace, "plan.json")
	text := strings.Replace(a.plan, one(a, `"wan": "wan"`, `"lan": "lan"`, `"aqm": "cake"`, `"platform": "linux"`), one(a, `"wan": `, `"lan": `, `"aqm": `, `"platform": `)+name, 1)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		a.Error(err)
	}
	for _, args := range [][]string{{"apply", file, "--yes", "--for", "linux"}, {"status", "--wan", harm[:len(harm)-1], "--for", "linux"}} { // no argument has a NUL
		out, code := a.run(a.T, args...)
		if code == cli.Done {
			a.Errorf("%q: exit 0: %s", args, out)
		}
		_, _ = a.strays.Write([]byte(out))
	}
}

// ports of the server's protocols.
func (a *attacker) port() string {
	return serverAddress + one(a, ":7676", ":5201", ":12865", ":7680")
}

func (a *attacker) silentAtServer() {
	c := a.dial("tcp", a.public(), a.port())
	_, _ = io.WriteString(c, one(a, "", "", `{"op":`, "GET / HT", "\x16\x03\x01", strings.Repeat("a", 20)))
	a.keep(c)
}

func (a *attacker) rubbishAtServer() {
	name := quoted()
	cookie := iperf3.MakeCookie([iperf3.CookieSize - 1]byte{byte(a.Uint32()), byte(a.Uint32()), byte(a.Uint32())})
	frame, _ := iperf3.Frame(iperf3.Params{TCP: true, Parallel: 4, Time: 1})
	switch a.IntN(3) {
	case 0:
		c := a.dial("tcp", a.public(), serverAddress+":7676")
		text := a.mutated(one(a, greeting, `{"op":"hello","versions":[1],"agent":`+name+`}`) + "\n" + one(a, `{"op":"udp","dir":"down","interval_ns":1}`, `{"op":"start","group":7}`, `{"op":"data","token":"00","dir":"up"}`,
			`{"op":"data","token":`+name+`,"dir":"up","cc":`+name+`}`, strings.Repeat("x", 5000), harm) + "\n")
		if a.IntN(4) == 0 {
			_, _ = io.WriteString(c, text)
			a.keep(c)
			return
		}
		a.says(c, text)
	case 1:
		a.says(a.dial("tcp", a.public(), serverAddress+":5201"), a.mutated(string(cookie[:])+one(a, string(frame), "\xff\xff\xff\xff", "\x00\x00\x00\x09{", "\x00\x00\x01\x00"+name)))
	case 2:
		b := make([]byte, 656)
		for i := range b {
			b[i] = byte(a.Uint32())
		}
		a.says(a.dial("tcp", a.public(), serverAddress+":12865"), string(b[:a.IntN(len(b)+1)]))
	}
}

const greeting = `{"op":"hello","versions":[1]}`

// elsewhere has a test's data connections come from another address, and leaves it at any
// moment.
func (a *attacker) elsewhere() {
	c := a.dial("tcp", "100.64.0.1", serverAddress+":7676")
	_, _ = io.WriteString(c, greeting+"\n")
	var hello struct{ Token string }
	if json.NewDecoder(c).Decode(&hello) != nil {
		c.Close()
		return
	}
	flows := []io.Closer{c}
	for range 5 {
		d := a.dial("tcp", "100.64.0.2", serverAddress+":7676")
		_, _ = fmt.Fprintf(d, "{\"op\":\"data\",\"token\":%q,\"group\":1,\"dir\":\"up\"}\n", hello.Token)
		flows = append(flows, d)
	}
	_, _ = io.WriteString(c, one(a, "", `{"op":"start","group":1,"flows":5,"limit_ns":50000000}`+"\n", `{"op":"start","group":1,"flows":5}`+"\n"+`{"op":"stop","group":1}`+"\n"))
	a.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
	a.keep(flows...)
}

// hoard opens a connection of HTTP/2 whose client takes no byte of an answer; ask begins a
// request there, and sends so much of its body.
func (a *attacker) hoard() (c net.Conn, ask func(method, path string, body unit.Size)) {
	d := &net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.public())}}
	s, err := tls.DialWithDialer(d, "tcp", serverAddress+":7680", &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return nowhere(), func(string, string, unit.Size) {}
	}
	_ = s.SetDeadline(time.Now().Add(time.Second))
	framer := http2.NewFramer(s, s)
	_, _ = io.WriteString(s, http2.ClientPreface)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	last := uint32(0)
	return s, func(method, path string, body unit.Size) {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		last = last + 1 | 1
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: last, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: body == 0})
		piece := make([]byte, 16<<10)
		for n := unit.Size(0); n < body && err == nil; n += unit.Size(len(piece)) {
			err = framer.WriteData(last, false, piece)
		}
	}
}

func (a *attacker) bodies() {
	c, ask := a.hoard()
	for range 4 {
		ask(one(a, "POST", "GET", "OPTIONS", "PUT", "DELETE"), one(a, "/__down?bytes=4000", "/getIP", "/garbage", "/empty", "/nq/small", "/nowhere", "/api/key", "/", "/__up", "/api/results?session=x"), unit.MB)
	}
	a.keep(c)
}

func (a *attacker) untaken() {
	c, ask := a.hoard()
	for range 30 {
		ask("GET", one(a, "/getIP", "/__down?bytes=4000000", "/garbage?ckSize=4", "/"), 0)
	}
	a.keep(c)
}

func (a *attacker) rubbishAtWeb() {
	name := quoted()
	a.says(a.dial("tcp", a.public(), serverAddress+":7680"), a.mutated(one(a,
		"GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 60_000),
		request("POST", "/__up", "x", "", strings.Repeat("y", 1000)),
		"POST /__up HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",
		request("GET", "/__down?bytes=-5", "x", "", ""),
		request("GET", "/ndt/v7/download", "x", "", ""),
		request("GET", "/r/"+url.PathEscape(harm), "x", "", ""),
		request("GET", "/api/results/"+url.PathEscape(harm), "x", "", ""),
		request("DELETE", "/api/results/x", "x", "Authorization: Bearer "+harm+"\r\n", ""),
		request("POST", "/api/results?session=x", "x", asJSON, `{"schema":`+name+`,"phases":[`),
		request("POST", "/api/results?session=x", "x", asJSON, strings.Repeat("[", 50_000)),
		request("GET", "/../../../../../etc/passwd", "x", "", ""),
		request("GET", "/", harm, "User-Agent: "+harm+"\r\nAccept-Language: "+strings.Repeat("a-b-c-,", 1000)+"\r\n", ""),
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", harm,
	)))
}

// webSockets opens sessions of the page, uses them from another address, and says what is
// no probe.
func (a *attacker) webSockets() {
	ctx, cancel := context.WithTimeout(a.ctx, time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+serverAddress+":7680"+one(a, "/api/probe", "/api/probe", "/ndt/v7/upload", "/ndt/v7/download"), &websocket.DialOptions{
		Subprotocols: []string{one(a, serve.Subprotocol, serve.Subprotocol, "net.measurementlab.ndt.v7", "x")}, HTTPClient: clientFrom("100.64.0.1")})
	if err != nil {
		return
	}
	_, text, _ := c.Read(ctx)
	var hello serve.Hello
	_ = json.Unmarshal(text, &hello)
	for range a.IntN(30) {
		_ = c.Write(ctx, one(a, websocket.MessageBinary, websocket.MessageText), []byte(a.mutated(one(a, strings.Repeat("p", 48), harm, strings.Repeat("x", 100_000)))))
	}
	session := "?session=" + hello.Session
	a.says(a.dial("tcp", "100.64.0.2", serverAddress+":7680"), a.mutated(one(a,
		request("POST", "/api/up"+session, "x", "", strings.Repeat("y", 50_000)),
		request("GET", "/api/down"+session+"&bytes=100000", "x", "", ""),
		request("POST", "/api/results"+session, "x", asJSON, `{"schema":`+quoted()+`}`))))
	a.keep(closer(func() error { return c.CloseNow() }))
}

type closer func() error

func (c closer) Close() error { return c() }

func (a *attacker) datagrams() {
	for range 20 {
		c := a.dial("udp", a.public(), serverAddress+one(a, ":7676", ":2112", ":7680"))
		b := make([]byte, 1+a.IntN(1400))
		for i := range b {
			b[i] = byte(a.Uint32())
		}
		switch a.IntN(3) {
		case 0:
			copy(b, irtt.OpenRequest(irtt.Params{Version: 1, Duration: time.Minute, Interval: time.Second, Stats: 3, StampAt: 3, Clock: 3, Length: 100}, nil))
		case 1:
			copy(b, "\xc0\x00\x00\x00\x01\x08") // QUIC, version 1
		}
		_, _ = c.Write(b)
		c.Close()
	}
}
