<?php

// SPDX-License-Identifier: Apache-2.0

namespace OPNsense\Unbloat;

use OPNsense\Base\BaseModel;

class Unbloat extends BaseModel
{
}
