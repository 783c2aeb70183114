-- Runs ClearOS's engine of QoS: arg[1] is the engine, arg[2] network.conf ("" if
-- there is none), arg[3] the family. The settings come by the environment. What
-- the firewall would give the engine is here; each command, text and error is a
-- line.
local function out(kind, text)
	io.write(kind, " ", (string.gsub(text, "\n.*", "")), "\n")
end

for _, name in ipairs({ "QOS_ENABLE", "QOS_ENABLE_IFB", "QOS_UPSTREAM", "QOS_DOWNSTREAM", "QOS_UPSTREAM_BWRES", "QOS_DOWNSTREAM_BWRES",
	"QOS_UPSTREAM_BWLIMIT", "QOS_DOWNSTREAM_BWLIMIT", "QOS_PRIOMARK4", "QOS_PRIOMARK6", "QOS_PRIOMARK4_CUSTOM", "QOS_PRIOMARK6_CUSTOM" }) do
	_G[name] = os.getenv(name)
end
FW_PROTO, TCBIN, IPBIN, MODPROBE = arg[3], "/sbin/tc", "/sbin/ip", "/sbin/modprobe"

function echo(text) out("S", text) end
function debug() end
function execute(command) out("C", command) end
os.execute = execute
function iptables(name, rule) out("C", "iptables -t " .. name .. " " .. rule) end
function iptc_create_chain(name, chain) out("C", "iptables -t " .. name .. " -N " .. chain) end
function CalculateRateToQuantum(ifn, least) return "<r2q of " .. ifn .. " " .. least .. ">" end
function TablePrint() end

function TableCount(list)
	local n = 0
	for _ in pairs(list) do
		n = n + 1
	end
	return n
end

function PackWhitespace(text)
	return (string.gsub(text, " +", " "))
end

function Explode(by, text)
	local list, from = {}, 1
	while true do
		local at, last = string.find(text, by, from, true)
		if at == nil then
			table.insert(list, string.sub(text, from))
			return list
		end
		table.insert(list, string.sub(text, from, at - 1))
		from = last + 1
	end
end

local open, network = io.open, arg[2]
io.open = function(name, mode)
	if name == "/etc/clearos/network.conf" then
		name = network
	end
	return open(name, mode)
end

local f = assert(open(arg[1]))
local engine = assert(loadstring(f:read("*a"), "=libqos.lua"))
f:close()
engine()
local ok, err = pcall(RunBandwidthExternal)
if not ok then
	out("E", tostring(err))
end
