package tell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/tell"
	"unbloat/testkit/await"
)

// broker runs mosquitto with a user and a password.
func broker(t *testing.T) (port string) {
	t.Helper()
	for _, program := range []string{"mosquitto", "mosquitto_passwd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: there is no %s; apt-get install mosquitto", program)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	dir := t.TempDir()
	conf, users := filepath.Join(dir, "conf"), filepath.Join(dir, "users")
	if out, err := exec.CommandContext(t.Context(), "mosquitto_passwd", "-b", "-c", users, "me", "s3cret").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := fmt.Sprintf("listener %s 127.0.0.1\nallow_anonymous false\npassword_file %s\nuser root\n", port, users)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "mosquitto", "-c", conf)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return port
}

// A real broker keeps what Home Assistant finds the line by and how it is, gets an incident
// with its end, and its switch turns the shaping off, and on. When the daemon goes it is
// offline. Nothing of the password is told.
func TestMQTT(t *testing.T) {
	await.NotShort(t)
	port := broker(t)
	key := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(key, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard := make(chan *paho.Publish, 64)
	at, _ := url.Parse("mqtt://127.0.0.1:" + port)
	home, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{ServerUrls: []*url.URL{at}, KeepAlive: 30, ConnectUsername: "me", ConnectPassword: []byte("s3cret"),
		ReconnectBackoff: func(int) time.Duration { return 100 * time.Millisecond }, // until the broker listens
		OnConnectionUp: func(m *autopaho.ConnectionManager, _ *paho.Connack) {
			go m.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "#", QoS: 1}}})
		},
		ClientConfig: paho.ClientConfig{ClientID: "home", OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			heard <- p.Packet
			return true, nil
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := home.AwaitConnection(ctx); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	hear := func(topic, says string) {
		t.Helper()
		for !strings.Contains(seen[topic], says) || seen[topic] == "" {
			select {
			case p := <-heard:
				seen[p.Topic] = string(p.Payload)
			case <-ctx.Done():
				t.Fatalf("%s does not say %q; there is %v", topic, says, seen)
			}
		}
	}
	var mu sync.Mutex
	logged, switched := "", make(chan string, 4)
	to := config.Notify{To: "mqtt", URL: "mqtt://me@127.0.0.1:" + port, SecretFile: key, MinSeverity: "major", Most: 6}
	told := tell.New([]config.Notify{to}, tell.Options{Getenv: os.Getenv, Send: tell.Send, MQTT: tell.MQTT, Log: func(f string, a ...any) { mu.Lock(); logged += fmt.Sprintf(f, a...); mu.Unlock() },
		House: tell.House{Lines: func() []tell.LineState {
			return []tell.LineState{{Key: "pppoe-wan", Name: "pppoe-wan", Down: 5e6, Up: 1e6, LimitDown: 46e6, LimitUp: 9e6, DelayMs: 7.5, Shaping: "ON", Incident: "none", Grade: "A"}}
		},
			Switch: func(_ context.Context, key string, on bool) error { switched <- fmt.Sprint(key, on); return nil }}})
	of, end := context.WithCancel(ctx)
	done := make(chan bool)
	go func() { defer close(done); told.Run(of) }()
	hear("unbloat/available", "online")
	hear("unbloat/pppoe_wan/state", `"down_bps":5000000`)
	var state map[string]any
	if err := json.Unmarshal([]byte(seen["unbloat/pppoe_wan/state"]), &state); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct { // rate, limit, delay, grade, incident, and the switch
		kind, value, unit string
		is                any
	}{
		{"sensor", "down_bps", "bit/s", 5e6}, {"sensor", "up_bps", "bit/s", 1e6}, {"sensor", "limit_down_bps", "bit/s", 46e6}, {"sensor", "limit_up_bps", "bit/s", 9e6},
		{"sensor", "delay_ms", "ms", 7.5}, {"sensor", "grade", "", "A"}, {"sensor", "incident", "", "none"}, {"switch", "shaping", "", "ON"},
	} {
		topic := "homeassistant/" + x.kind + "/unbloat_pppoe_wan_" + x.value + "/config"
		hear(topic, `"unique_id":"unbloat_pppoe_wan_`+x.value+`"`)
		var d map[string]any
		if err := json.Unmarshal([]byte(seen[topic]), &d); err != nil {
			t.Fatal(err)
		}
		unit, _ := d["unit_of_measurement"].(string)
		if template, _ := d["value_template"].(string); unit != x.unit || !strings.HasPrefix(template, "{{ value_json."+x.value+" ") || d["state_topic"] != "unbloat/pppoe_wan/state" || state[x.value] != x.is {
			t.Errorf("%s: %v; the state has %v", topic, d, state[x.value])
		}
		if x.kind == "switch" && (d["command_topic"] != "unbloat/pppoe_wan/shaping/set" || d["payload_on"] != "ON" || d["payload_off"] != "OFF") {
			t.Errorf("%s: %v", topic, d)
		}
	}
	x := wrong("a", incident.Severe)
	x.WAN = "pppoe-wan"
	told.Tell(x)
	hear("unbloat/pppoe_wan/incident", `"event":"begin"`)
	x.End = x.Begin.Add(time.Minute)
	told.Tell(x)
	hear("unbloat/pppoe_wan/incident", `"event":"end"`)
	for _, c := range []string{"maybe", "OFF", "ON"} {
		if _, err := home.Publish(ctx, &paho.Publish{Topic: "unbloat/pppoe_wan/shaping/set", QoS: 1, Payload: []byte(c)}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]bool{<-switched: true, <-switched: true}
	if !got["pppoe-wanfalse"] || !got["pppoe-wantrue"] || len(switched) > 0 {
		t.Errorf("it was switched %v", got)
	}
	end()
	<-done
	hear("unbloat/available", "offline")
	if all := logged + fmt.Sprint(told.Counts(), seen); strings.Contains(all, "s3cret") {
		t.Errorf("the password is told: %s", all)
	}
	if c := told.Counts()[0]; c.Sent != 2 || c.Dropped != 0 {
		t.Errorf("%+v", c)
	}
}
